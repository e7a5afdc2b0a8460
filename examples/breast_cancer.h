// The breast-cancer table that scikit-learn ships, and a small classifier for it.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/torch.h>

constexpr std::int64_t kFeatures = 30;
constexpr std::int64_t kHidden = 64;

struct Dataset {
  torch::Tensor features;  // [samples, kFeatures], each column with mean 0 and standard deviation 1
  torch::Tensor labels;    // [samples, 1], 1 for benign
};

inline Dataset read_csv(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open '" + path + "'");
  std::string line;
  std::getline(file, line);  // the header: number of samples, number of features, names of the classes
  std::vector<float> values;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    char comma = 0;
    for (float value = 0; fields >> value; fields >> comma) values.push_back(value);
  }
  const auto count = static_cast<std::int64_t>(values.size());
  if (count == 0 || count % (kFeatures + 1) != 0)
    throw std::runtime_error("'" + path + "' is not a table of " + std::to_string(kFeatures) + " features and a label");

  const auto table = torch::tensor(values).view({-1, kFeatures + 1});
  const auto features = table.narrow(1, 0, kFeatures);
  return {(features - features.mean(0)) / features.std(0), table.narrow(1, kFeatures, 1).contiguous()};
}

// Returns the probability that a sample is benign, [samples, 1].
struct ClassifierImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(fc1(x));
    x = torch::relu(fc2(x));
    return torch::sigmoid(fc3(x));
  }

  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(kFeatures, kHidden));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(kHidden, kHidden));
  torch::nn::Linear fc3 = register_module("fc3", torch::nn::Linear(kHidden, 1));
};
TORCH_MODULE(Classifier);
