// LibTorch's optimizers under a Watch. The one file that needs torch::optim.
#include <algorithm>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "firstfault/live/measure/as_held.h"
#include "firstfault/live/measure/scan.h"
#include "firstfault/live/module_names.h"
#include "firstfault/live/watch.h"
#include "firstfault/live/watch/parameters.h"

namespace firstfault {
namespace {

namespace optim = torch::optim;

template <class State, class Options>
void read_adam(optim::Optimizer& optimizer, optim::OptimizerParamGroup& group, watch::GroupNumbers& numbers) {
  numbers.state_steps = 0;
  constexpr std::size_t kLook = 4;
  bool first = true;
  for (std::size_t i = 0; i < std::min(group.params().size(), kLook); ++i) {
    const at::Tensor& parameter = group.params()[i];
    numbers.eps = measure::eps_as_held(static_cast<Options&>(group.options()).eps(), parameter.scalar_type());
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    auto& state = static_cast<State&>(*found->second);
    const auto steps = static_cast<double>(state.step());
    numbers.state_steps = first ? steps : std::min(numbers.state_steps, steps);
    first = false;
    if (state.exp_avg_sq().defined()) numbers.second_moments.push_back(state.exp_avg_sq());
  }
}

// Momentum and its like: there, or not.
void read_presence(optim::Optimizer& optimizer, optim::OptimizerParamGroup& group, watch::GroupNumbers& numbers) {
  const auto has_state = [&](const at::Tensor& parameter) {
    return optimizer.state().count(parameter.unsafeGetTensorImpl()) > 0;
  };
  numbers.state_steps = std::any_of(group.params().begin(), group.params().end(), has_state);
}

std::vector<watch::GroupNumbers> read(optim::Optimizer& optimizer) {
  std::vector<watch::GroupNumbers> groups;
  for (auto& group : optimizer.param_groups()) {
    watch::GroupNumbers numbers;
    numbers.lr = group.options().get_lr();
    numbers.has_lr = true;
    if (dynamic_cast<optim::Adam*>(&optimizer)) {
      read_adam<optim::AdamParamState, optim::AdamOptions>(optimizer, group, numbers);
    } else if (dynamic_cast<optim::AdamW*>(&optimizer)) {
      read_adam<optim::AdamWParamState, optim::AdamWOptions>(optimizer, group, numbers);
    } else {
      read_presence(optimizer, group, numbers);
    }
    groups.push_back(std::move(numbers));
  }
  return groups;
}

std::string type_of(optim::Optimizer& optimizer) {
  if (dynamic_cast<optim::Adam*>(&optimizer)) return "Adam";
  if (dynamic_cast<optim::AdamW*>(&optimizer)) return "AdamW";
  if (dynamic_cast<optim::SGD*>(&optimizer)) return "SGD";
  if (dynamic_cast<optim::RMSprop*>(&optimizer)) return "RMSprop";
  if (dynamic_cast<optim::Adagrad*>(&optimizer)) return "Adagrad";
  return "optimizer";
}

std::vector<std::size_t> sizes_of(optim::Optimizer& optimizer) {
  std::vector<std::size_t> sizes;
  for (const auto& group : optimizer.param_groups()) sizes.push_back(group.params().size());
  return sizes;
}

}  // namespace

int Watch::watch(optim::Optimizer& optimizer) {
  OptimizerInfo info{.type = type_of(optimizer)};
  std::vector<at::Tensor> tensors;
  for (auto& group : optimizer.param_groups()) {
    info.groups.push_back({{"lr", group.options().get_lr()}});
    tensors.insert(tensors.end(), group.params().begin(), group.params().end());
  }
  const int number = remember(&optimizer, hold(tensors, std::move(info)));
  group_sizes(number) = sizes_of(optimizer);
  return number;
}

// Parameters may have joined since its last step.
int Watch::number_of(optim::Optimizer& optimizer) {
  const int known = recall(&optimizer);
  if (known < 0) return watch(optimizer);
  std::vector<std::size_t>& sizes = group_sizes(known);
  auto now = sizes_of(optimizer);
  if (now == sizes) return known;
  std::vector<at::Tensor> fresh;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& parameters = optimizer.param_groups()[i].params();
    for (std::size_t p = i < sizes.size() ? sizes[i] : 0; p < now[i]; ++p) fresh.push_back(parameters[p]);
  }
  hold_more(known, fresh);
  sizes = std::move(now);
  return known;
}

Watch::Watch(const torch::nn::Module& model, optim::Optimizer& optimizer, WatchOptions options)
    : Watch(std::move(options)) {
  watch(model);
  watch(optimizer);
}

void Watch::step(optim::Optimizer& optimizer, const at::Tensor& loss_of_step) {
  step(optimizer, loss_of_step, [&] { optimizer.step(); });
}

void Watch::step(optim::Optimizer& optimizer, const at::Tensor& loss_of_step, const std::function<void()>& make_step) {
  const int number = number_of(optimizer);
  if (loss_of_step.defined() && loss_of_step.numel() == 1) loss(measure::value_at(loss_of_step, 0));
  before_step(number, read(optimizer), /*ranged=*/false);
  make_step();
  after_step(number, read(optimizer), /*ranged=*/false);
}

}  // namespace firstfault
