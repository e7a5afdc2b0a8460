// A LibTorch program that knows nothing of firstfault: a log of 0 in step 12, and numbers that a watch must not change.
// usage: trainer [STEPS]
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

// A global: it goes after the main thread's own objects.
struct LastWords {
  torch::Tensor kept;
  ~LastWords() {
    if (kept.defined()) std::printf("%a\n", torch::log(kept.abs() + 1).sum().item<double>());
  }
} last_words;

torch::Tensor loss_of(torch::nn::Sequential& model, const torch::Tensor& x, int step) {
  auto probability = torch::softmax(model->forward(x), 1).select(1, 0);
  if (step == 12) probability = probability * 0;
  return -torch::log(probability).mean();  // the fault
}

int main(int count, char** words) {
  torch::manual_seed(0);
  torch::set_num_threads(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Dropout(0.1),
                              torch::nn::Linear(16, 4));
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  const int steps = count > 1 ? std::atoi(words[1]) : 20;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    auto loss = loss_of(model, torch::randn({32, 8}), step);
    loss.backward();
    optimizer.step();
    std::printf("%d %a\n", step, loss.item<double>());
  }
  std::printf("%a\n", model->parameters()[0].sum().item<double>());
  last_words.kept = model->parameters()[0].detach().clone();
  return steps > 12 ? 3 : 0;
}
