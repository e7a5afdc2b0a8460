// Trains a small classifier until its loss is NaN, then asks firstfault why. Nothing is injected.
// usage: example_demo breast_cancer.csv run.ffrun   (scikit-learn ships the table; the run is recorded in the other)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <firstfault/firstfault.h>
#include <torch/torch.h>

#include "breast_cancer.h"

namespace {

constexpr std::int64_t kBatch = 32;
constexpr double kLearningRate = 0.2;
constexpr int kSteps = 3000;
constexpr int kPrintEvery = 50;

// Binary cross-entropy as a textbook writes it; torch::binary_cross_entropy_with_logits is how to write it.
struct CrossEntropyImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& p, const torch::Tensor& y) {
    const firstfault::ModuleScope scope("loss");  // it has no parameters, by which its ops would be recognised
    const auto benign = y * torch::log(p);
    const auto malignant = (1 - y) * torch::log(1 - p);
    return -(benign + malignant).mean();
  }
};
TORCH_MODULE(CrossEntropy);

void print_loss(std::size_t step, float loss) {
  std::cout << "step " << std::setw(4) << step << "   loss " << std::fixed << std::setprecision(4) << loss << std::endl;
}

// The last few losses, which print_loss() may not have shown yet.
void print_end(const std::vector<float>& losses) {
  std::cout << "...\n";
  for (std::size_t step = losses.size() - std::min<std::size_t>(losses.size(), 4); step < losses.size(); ++step)
    print_loss(step, losses[step]);
}

// `batch` holds the rows of the file that the batch was made of.
void print_sample(const firstfault::Hypothesis& why, const torch::Tensor& batch) {
  if (!why.sample) return;
  std::cout << "\nSample " << *why.sample << " of this batch is row " << batch[*why.sample].item<std::int64_t>()
            << " of the file.\n";
}

// True when the loss stopped being finite and firstfault found out why.
bool train_until_it_breaks(const Dataset& data, const std::string& run_file) {
  Classifier model;
  CrossEntropy cross_entropy;
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);

  firstfault::Watch watch({.run_file = run_file});  // from here on every op is watched
  watch.watch(*model, "model");
  watch.watch(*cross_entropy, "loss");
  watch.watch(optimizer);

  std::vector<float> losses;
  while (losses.size() < kSteps) {
    const auto batch = torch::randint(data.labels.size(0), {kBatch}, torch::kInt64);
    const auto p = model(data.features.index_select(0, batch));
    const auto loss = cross_entropy(p, data.labels.index_select(0, batch));

    optimizer.zero_grad();
    loss.backward();
    watch.step(optimizer, loss);  // optimizer.step(), measured

    losses.push_back(loss.item<float>());
    if (!std::isfinite(losses.back())) {
      print_end(losses);
      const auto why = watch.explain();
      std::cout << "\nThe loss is not finite any more. firstfault says:\n\n";
      if (why.empty()) return false;
      std::cout << why.front() << "\n";
      print_sample(why.front(), batch);
      return true;
    }
    if (losses.size() % kPrintEvery == 1) print_loss(losses.size() - 1, losses.back());
  }
  std::cout << "The loss stayed finite for " << kSteps << " steps.\n";
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " breast_cancer.csv run.ffrun\n";
    return 1;
  }
  try {
    torch::manual_seed(0);
    torch::set_num_threads(1);  // the tensors are small
    return train_until_it_breaks(read_csv(argv[1]), argv[2]) ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}
