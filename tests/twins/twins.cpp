// Faults that twins.py has too, under the same names: both must get the same diagnosis, each with a line of its own.
// usage: twins_O2 [text]   one JSON object per fault and line; with `text` the text form
#include <exception>
#include <iostream>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include <firstfault/firstfault.h>
#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

namespace {

using firstfault::Diagnosis;
using firstfault::ModuleScope;
using firstfault::Trace;
using torch::Tensor;
using torch::nn::Linear;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Linear linear(const Tensor& weight) {
  Linear layer(weight.size(1), weight.size(0));
  const torch::NoGradGuard guard;
  layer->weight.copy_(weight);
  layer->bias.zero_();
  return layer;
}

struct LogNet : torch::nn::Module {
  struct Log : torch::nn::Module {
    Tensor forward(const Tensor& x) {
      const ModuleScope scope("model.log");
      return torch::log(x);  // <- log_in_a_module
    }
  };

  Linear fc = register_module("fc", linear(torch::eye(2)));
  std::shared_ptr<Log> log = register_module("log", std::make_shared<Log>());

  Tensor forward(const Tensor& x) { return log->forward(fc(x)); }
};

Diagnosis log_in_a_module() {
  LogNet model;
  const auto x = torch::tensor({{1.0f, 2.0f}, {3.0f, 0.0f}});
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x).sum());
}

struct TwoLayers : torch::nn::Module {
  Linear first = register_module("first", linear(torch::eye(2)));
  Linear second = register_module("second", linear(torch::eye(2)));

  Tensor forward(Tensor x) {
    x = torch::relu(first(x));
    return second(x);  // <- nan_in_a_parameter
  }
};

Diagnosis nan_in_a_parameter() {
  TwoLayers model;
  const auto x = torch::ones({3, 2});
  model.second->weight.mutable_data_ptr<float>()[2] = kNaN;
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x).sum());
}

struct NormNet : torch::nn::Module {
  struct Norm : torch::nn::Module {
    Tensor forward(const Tensor& x) {
      const ModuleScope scope("model.norm");
      const auto squares = (x * x).sum(1);
      return torch::sqrt(squares);  // <- root_backward_at_zero
    }
  };

  Linear fc = register_module("fc", linear(torch::eye(2)));
  std::shared_ptr<Norm> norm = register_module("norm", std::make_shared<Norm>());

  Tensor forward(const Tensor& x) { return norm->forward(fc(x)); }
};

Diagnosis root_backward_at_zero() {
  NormNet model;
  const auto x = torch::tensor({{3.0f, 4.0f}, {1.0f, 1.0f}, {0.0f, 0.0f}});
  Trace trace;
  trace.watch(model, "model");
  model.forward(x).sum().backward();
  return trace.diagnose(model.fc->weight.grad());
}

Diagnosis loss_outside_the_model() {
  TwoLayers model;
  const auto x = torch::tensor({{0.5f, 0.25f}, {0.75f, 1.0f}});
  Trace trace;
  trace.watch(model, "model");
  const auto p = model.forward(x);
  const auto loss = -torch::log(1 - p).mean();  // <- loss_outside_the_model
  return trace.diagnose(loss);
}

struct Attention : torch::nn::Module {
  struct Weights : torch::nn::Module {
    Tensor forward(const Tensor& q, const Tensor& k, const Tensor& mask) {
      const ModuleScope scope("model.weights");
      const auto scores = torch::matmul(q, k.transpose(1, 2)).masked_fill(mask, -kInf);
      return torch::softmax(scores, -1);  // <- fully_masked_row
    }
  };

  Linear query = register_module("query", linear(torch::eye(2)));
  Linear key = register_module("key", linear(torch::eye(2)));
  std::shared_ptr<Weights> weights = register_module("weights", std::make_shared<Weights>());

  Tensor forward(const Tensor& x, const Tensor& mask) { return weights->forward(query(x), key(x), mask); }
};

Diagnosis fully_masked_row() {
  Attention model;
  const auto x = torch::ones({2, 3, 2});
  const auto mask = torch::zeros({2, 3, 3}, torch::kBool);
  mask[0][0][1] = true;
  mask[1][2] = true;
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x, mask).sum());
}

Diagnosis nan_in_the_batch() {
  torch::nn::Sequential model(linear(torch::eye(2)), linear(torch::eye(2)));
  const auto x = torch::ones({4, 2});
  x[2][1] = kNaN;
  Trace trace;
  trace.watch(*model, "model");
  const auto y = model->forward(x);  // <- nan_in_the_batch
  return trace.diagnose(y.sum());
}

struct RootNet : torch::nn::Module {
  struct Root : torch::nn::Module {
    Tensor forward(Tensor x) {
      const ModuleScope scope("model.root");
      x.sub_(1);
      x.sqrt_();  // <- root_in_place
      return x;
    }
  };

  Linear fc = register_module("fc", linear(torch::eye(3)));
  std::shared_ptr<Root> root = register_module("root", std::make_shared<Root>());

  Tensor forward(const Tensor& x) { return root->forward(fc(x)); }
};

Diagnosis root_in_place() {
  RootNet model;
  const auto x = torch::tensor({{1.0f, 2.0f, 3.0f}, {4.0f, 0.5f, 6.0f}});
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x).sum());
}

Diagnosis third_layer_of_a_sequential() {
  torch::nn::Sequential model(linear(torch::eye(2)), linear(1e20f * torch::eye(2)), linear(1e20f * torch::eye(2)));
  const auto x = torch::tensor({{0.0f, 0.0f}, {0.0f, 1.0f}});
  Trace trace;
  trace.watch(*model, "model");
  const auto y = model->forward(x);  // <- third_layer_of_a_sequential
  return trace.diagnose(y.sum());
}

struct Recurrent : torch::nn::Module {
  Linear step = register_module("step", linear(1e20f * torch::eye(2)));

  Tensor forward(Tensor x) {
    x = step(x);
    x = step(x);  // <- layer_used_twice
    return x;
  }
};

Diagnosis layer_used_twice() {
  Recurrent model;
  const auto x = torch::tensor({{0.0f, 0.0f}, {0.0f, 1.0f}});
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x).sum());
}

struct Tied : torch::nn::Module {
  struct Decoder : torch::nn::Module {
    Tensor weight;

    explicit Decoder(const Tensor& shared) { weight = register_parameter("weight", shared); }
    Tensor forward(const Tensor& x) {
      const ModuleScope scope("model.decoder");
      return torch::matmul(x, weight);  // <- tied_weights
    }
  };

  Linear encoder = register_module("encoder", linear(1e20f * torch::eye(2)));
  std::shared_ptr<Decoder> decoder = register_module("decoder", std::make_shared<Decoder>(encoder->weight));

  Tensor forward(const Tensor& x) { return decoder->forward(encoder(x)); }
};

Diagnosis tied_weights() {
  Tied model;
  const auto x = torch::tensor({{0.0f, 0.0f}, {0.0f, 1.0f}});
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x).sum());
}

struct SafeRootNet : torch::nn::Module {
  struct SafeRoot : torch::nn::Module {
    Tensor forward(const Tensor& x) {
      const ModuleScope scope("model.safe_root");
      const auto roots = torch::sqrt(x);  // <- root_that_where_hides
      return torch::where(x > 0, roots, torch::zeros_like(x));
    }
  };

  Linear fc = register_module("fc", linear(torch::eye(2)));
  std::shared_ptr<SafeRoot> safe_root = register_module("safe_root", std::make_shared<SafeRoot>());

  Tensor forward(const Tensor& x) { return safe_root->forward(fc(x)); }
};

Diagnosis root_that_where_hides() {
  SafeRootNet model;
  const auto x = torch::tensor({{1.0f, 2.0f}, {0.0f, 3.0f}});
  Trace trace;
  trace.watch(model, "model");
  model.forward(x).sum().backward();
  return trace.diagnose(model.fc->weight.grad());
}

Diagnosis infinite_learning_rate() {
  TwoLayers model;
  torch::optim::SGD optimizer(model.parameters(), /*lr=*/kInf);
  const auto x = torch::tensor({{1.0f, 0.0f}});
  Trace trace;
  trace.watch(model, "model");
  model.forward(x).sum().backward();
  optimizer.step();  // <- infinite_learning_rate
  return trace.diagnose(model.first->weight);
}

// Squares of gradients this small are 0 in half, and so is the default eps of 1e-8.
Diagnosis adam_in_half() {
  torch::nn::Sequential model(linear(torch::eye(2)));
  model->to(torch::kHalf);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  const auto x = torch::tensor({{1.0f, 0.0f}}).to(torch::kHalf);
  Trace trace;
  trace.watch(*model, "model");
  (model->forward(x).sum() * 1e-4).backward();
  optimizer.step();  // <- adam_in_half
  return trace.diagnose(model->parameters().front());
}

struct RootFunction : torch::autograd::Function<RootFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    const auto root = torch::sqrt(x);
    context->save_for_backward({root});
    return root;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto root = context->get_saved_variables()[0];
    const auto gradient = gradients[0] / (2 * root);  // <- custom_function
    return {gradient};
  }
};

struct CustomNet : torch::nn::Module {
  struct Root : torch::nn::Module {
    Tensor forward(const Tensor& x) {
      const ModuleScope scope("model.root");
      return RootFunction::apply(x);
    }
  };

  Linear fc = register_module("fc", linear(torch::eye(2)));
  std::shared_ptr<Root> root = register_module("root", std::make_shared<Root>());

  Tensor forward(const Tensor& x) { return root->forward(fc(x)); }
};

Diagnosis custom_function() {
  CustomNet model;
  const auto x = torch::tensor({{1.0f, 4.0f}, {9.0f, 0.0f}});
  Trace trace;
  trace.watch(model, "model");
  model.forward(x).sum().backward();
  return trace.diagnose(model.fc->weight.grad());
}

struct ExpNet : torch::nn::Module {
  struct Exp : torch::nn::Module {
    Tensor forward(const Tensor& x) {
      const ModuleScope scope("model.exp");
      const auto half = x.to(torch::kHalf);
      return torch::exp(half);  // <- exp_in_half
    }
  };

  Linear fc = register_module("fc", linear(torch::eye(2)));
  std::shared_ptr<Exp> exp = register_module("exp", std::make_shared<Exp>());

  Tensor forward(const Tensor& x) { return exp->forward(fc(x)); }
};

Diagnosis exp_in_half() {
  ExpNet model;
  const auto x = torch::tensor({{1.0f, 11.0f}, {2.0f, 3.0f}, {12.0f, 4.0f}});
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x).sum());
}

struct MaskedMeanNet : torch::nn::Module {
  struct MaskedMean : torch::nn::Module {
    Tensor forward(const Tensor& x, const Tensor& mask) {
      const ModuleScope scope("model.mean");
      const auto total = (x * mask).sum(1);
      const auto count = mask.sum(1);
      return total / count;  // <- zero_over_zero
    }
  };

  Linear fc = register_module("fc", linear(torch::eye(2)));
  std::shared_ptr<MaskedMean> mean = register_module("mean", std::make_shared<MaskedMean>());

  Tensor forward(const Tensor& x, const Tensor& mask) { return mean->forward(fc(x), mask); }
};

Diagnosis zero_over_zero() {
  MaskedMeanNet model;
  const auto x = torch::ones({3, 2});
  const auto mask = torch::tensor({{1.0f, 1.0f}, {0.0f, 0.0f}, {0.0f, 1.0f}});
  Trace trace;
  trace.watch(model, "model");
  return trace.diagnose(model.forward(x, mask).sum());
}

using Fault = std::pair<const char*, Diagnosis (*)()>;
constexpr Fault kFaults[] = {
    {"log_in_a_module", log_in_a_module},
    {"nan_in_a_parameter", nan_in_a_parameter},
    {"root_backward_at_zero", root_backward_at_zero},
    {"loss_outside_the_model", loss_outside_the_model},
    {"fully_masked_row", fully_masked_row},
    {"nan_in_the_batch", nan_in_the_batch},
    {"root_in_place", root_in_place},
    {"third_layer_of_a_sequential", third_layer_of_a_sequential},
    {"layer_used_twice", layer_used_twice},
    {"tied_weights", tied_weights},
    {"root_that_where_hides", root_that_where_hides},
    {"infinite_learning_rate", infinite_learning_rate},
    {"adam_in_half", adam_in_half},
    {"custom_function", custom_function},
    {"exp_in_half", exp_in_half},
    {"zero_over_zero", zero_over_zero},
};

}  // namespace

int main(int argc, char** argv) {
  const bool text = argc > 1 && std::string_view(argv[1]) == "text";
  try {
    torch::set_num_threads(1);
    for (const auto& [name, fault] : kFaults) {
      const Diagnosis diagnosis = fault();
      if (text) {
        std::cout << "== " << name << '\n' << diagnosis << '\n';
      } else {
        std::cout << "{\"fault\": \"" << name << "\", \"diagnosis\": " << firstfault::present::to_json(diagnosis)
                  << "}\n";
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}
