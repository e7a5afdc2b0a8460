// What a LibTorch optimizer holds beyond its parameters: hyperparameters and state.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/guard/result_bound.h"
#include "firstfault/live/guard/copies.h"
#include "firstfault/live/guard/step_check.h"

namespace torch::optim {
class Optimizer;
}

namespace firstfault {

/// Parameters, state and hyperparameters, to be put back. Of an optimizer that is not LibTorch's own the state is taken
/// by its clone(), and the tensors in it are not copied.
class OptimizerCopy {
 public:
  explicit OptimizerCopy(torch::optim::Optimizer& optimizer);
  ~OptimizerCopy();
  OptimizerCopy(OptimizerCopy&&) noexcept;
  OptimizerCopy& operator=(OptimizerCopy&&) noexcept;

  void restore() const;
  /// Takes all anew, into the memory that it has.
  void renew();
  std::int64_t bytes() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS all is known.
bool is_known(torch::optim::Optimizer& optimizer);
/// It is one of them, and no subclass that may write as it likes.
bool writes_by_ops_only(torch::optim::Optimizer& optimizer);
/// It calls the closure itself, several times, and writes in between.
bool needs_closure(torch::optim::Optimizer& optimizer);
std::vector<at::Tensor> parameters_of(torch::optim::Optimizer& optimizer);
struct StateTensor {
  std::string_view name;      ///< as in torch.optim: "exp_avg"
  std::size_t parameter = 0;  ///< its place in parameters_of()
  at::Tensor tensor;
};
/// As they are, in the order of the parameters; those of LBFGS change from step to step.
std::vector<StateTensor> state_tensors(torch::optim::Optimizer& optimizer);
/// Of its groups; of an unknown rule where others may write by rules of their own.
std::vector<guard::UpdateNumbers> update_numbers(torch::optim::Optimizer& optimizer);
std::vector<guard::Hyperparameter> hyperparameters_of(torch::optim::Optimizer& optimizer);
/// Those that cannot be, and a value that can; `usual`: what they were at another time.
using SoundHyperparameters = std::vector<std::pair<guard::Hyperparameter, double>>;
SoundHyperparameters sound_hyperparameters(torch::optim::Optimizer& optimizer,
                                           const std::vector<guard::Hyperparameter>& usual);
void set_weight_decay(torch::optim::Optimizer& optimizer, double value);
void set_hyperparameters(torch::optim::Optimizer& optimizer, const SoundHyperparameters& sound);

}  // namespace firstfault
