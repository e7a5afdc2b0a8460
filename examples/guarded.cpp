// The training of demo.cpp under a guard: it goes on where the other died, and what broke it is proved.
// usage: example_guarded breast_cancer.csv
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <string>
#include <utility>

#include <firstfault/firstfault.h>
#include <torch/torch.h>

#include "breast_cancer.h"

namespace {

constexpr std::int64_t kBatch = 32;
constexpr double kLearningRate = 0.2;
constexpr int kSteps = 600;

using Batch = std::pair<torch::Tensor, torch::Tensor>;

torch::Tensor textbook_cross_entropy(const torch::Tensor& p, const torch::Tensor& y) {
  return -(y * torch::log(p) + (1 - y) * torch::log(1 - p)).mean();
}

torch::Tensor stable_cross_entropy(const torch::Tensor& p, const torch::Tensor& y) {
  return torch::binary_cross_entropy(p, y);  // its logarithms end at -100
}

Batch draw(const Dataset& data) {
  const auto rows = torch::randint(data.labels.size(0), {kBatch}, torch::kInt64);
  return {data.features.index_select(0, rows), data.labels.index_select(0, rows)};
}

double loss_of(Classifier& model, const Dataset& data) {
  const torch::NoGradGuard no_grad;
  return stable_cross_entropy(model(data.features), data.labels).item<double>();
}

void print(const std::string& name, double loss, const std::string& done) {
  std::cout << std::left << std::setw(22) << name << "loss " << std::fixed << std::setprecision(4) << loss << "   "
            << done << std::endl;
}

void train_without_fault(const Dataset& data) {
  torch::manual_seed(0);
  Classifier model;
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = draw(data);
    optimizer.zero_grad();
    stable_cross_entropy(model(batch.first), batch.second).backward();
    optimizer.step();
  }
  print("stable loss", loss_of(model, data), "");
}

// Returns why steps were faulty.
std::vector<firstfault::Hypothesis> train(const Dataset& data, firstfault::OnFault on_fault, const std::string& name) {
  torch::manual_seed(0);
  Classifier model;
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  firstfault::GuardOptions options;
  options.on_fault = on_fault;
  options.max_consecutive_skips = options.max_rollbacks = kSteps;  // as many as it takes
  options.snapshot_every = 25;
  firstfault::Guard guard(*model, optimizer, options);
  for (int step = 0; step < kSteps; ++step) {
    guard.step(draw(data), [&](const Batch& batch) {
      optimizer.zero_grad();
      const auto loss = textbook_cross_entropy(model(batch.first), batch.second);
      loss.backward();
      return loss;
    });
  }
  print(name, loss_of(model, data),
        std::to_string(guard.actions().size()) + " of " + std::to_string(kSteps) + " steps");
  return guard.explain();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " breast_cancer.csv\n";
    return 1;
  }
  try {
    torch::set_num_threads(1);
    const Dataset data = read_csv(argv[1]);
    train_without_fault(data);
    const auto why = train(data, firstfault::OnFault::skip, "faulty, skipped");
    train(data, firstfault::OnFault::rollback, "faulty, rolled back");
    if (why.empty()) return 1;
    std::cout << '\n' << why.front() << '\n';
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}
