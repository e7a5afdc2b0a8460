#include "firstfault/live/optimizer_copy.h"

#include <algorithm>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "firstfault/live/measure/as_held.h"

namespace firstfault {
namespace {

namespace optim = torch::optim;
using Slots = std::vector<at::Tensor*>;

// Pointers into a state of a known kind; nothing for another.
Slots slots_of(optim::OptimizerParamState& any) {
  if (auto* s = dynamic_cast<optim::SGDParamState*>(&any)) return {&s->momentum_buffer()};
  if (auto* s = dynamic_cast<optim::AdamParamState*>(&any))
    return {&s->exp_avg(), &s->exp_avg_sq(), &s->max_exp_avg_sq()};
  if (auto* s = dynamic_cast<optim::AdamWParamState*>(&any)) {
    return {&s->exp_avg(), &s->exp_avg_sq(), &s->max_exp_avg_sq()};
  }
  if (auto* s = dynamic_cast<optim::RMSpropParamState*>(&any)) {
    return {&s->square_avg(), &s->momentum_buffer(), &s->grad_avg()};
  }
  if (auto* s = dynamic_cast<optim::AdagradParamState*>(&any)) return {&s->sum()};
  Slots slots;
  if (auto* s = dynamic_cast<optim::LBFGSParamState*>(&any)) {
    slots = {&s->d(), &s->H_diag(), &s->prev_flat_grad()};
    for (auto* list : {&s->old_dirs(), &s->old_stps(), &s->ro()}) {
      for (at::Tensor& tensor : *list) slots.push_back(&tensor);
    }
    if (s->al()) {
      for (at::Tensor& tensor : *s->al()) slots.push_back(&tensor);
    }
  }
  return slots;
}

std::unique_ptr<optim::OptimizerParamState> deep_copy(const optim::OptimizerParamState& state) {
  auto copy = state.clone();
  for (at::Tensor* tensor : slots_of(*copy)) *tensor = guard::unseen_copy(*tensor);
  return copy;
}

guard::Hyperparameter eps_of(double eps, const optim::OptimizerParamGroup& group, const std::string& of) {
  const double held = group.params().empty() ? eps : measure::eps_as_held(eps, group.params().front().scalar_type());
  return {"eps" + of, eps, held, true};
}

template <class Options>
void add_adam(const Options& options, const optim::OptimizerParamGroup& group, const std::string& of,
              std::vector<guard::Hyperparameter>& into) {
  const auto [first, second] = options.betas();
  into.push_back({"betas[0]" + of, first});
  into.push_back({"betas[1]" + of, second});
  into.push_back(eps_of(options.eps(), group, of));
  into.push_back({"weight_decay" + of, options.weight_decay()});
}

}  // namespace

struct OptimizerCopy::State {
  optim::Optimizer& optimizer;
  guard::Copies parameters;
  std::vector<std::unique_ptr<optim::OptimizerOptions>> options;
  std::vector<std::pair<void*, std::unique_ptr<optim::OptimizerParamState>>> state;
  std::int64_t bytes = 0;
};

OptimizerCopy::OptimizerCopy(optim::Optimizer& optimizer)
    : state_(std::make_unique<State>(State{optimizer, guard::Copies(parameters_of(optimizer)), {}, {}, 0})) {
  for (const auto& group : optimizer.param_groups()) state_->options.push_back(group.options().clone());
  state_->bytes = state_->parameters.bytes();
  for (const auto& [key, value] : optimizer.state()) {
    state_->state.emplace_back(key, deep_copy(*value));
    for (const at::Tensor* tensor : slots_of(*state_->state.back().second)) {
      if (tensor->defined()) state_->bytes += static_cast<std::int64_t>(tensor->nbytes());
    }
  }
}

OptimizerCopy::~OptimizerCopy() = default;
OptimizerCopy::OptimizerCopy(OptimizerCopy&&) noexcept = default;
OptimizerCopy& OptimizerCopy::operator=(OptimizerCopy&&) noexcept = default;

void OptimizerCopy::restore() const {
  state_->parameters.restore();
  auto& groups = state_->optimizer.param_groups();
  for (std::size_t i = 0; i < std::min(groups.size(), state_->options.size()); ++i) {
    groups[i].set_options(state_->options[i]->clone());
  }
  auto& state = state_->optimizer.state();
  state.clear();
  for (const auto& [key, value] : state_->state) state[key] = deep_copy(*value);
}

std::int64_t OptimizerCopy::bytes() const noexcept { return state_->bytes; }

bool is_known(optim::Optimizer& optimizer) {
  return dynamic_cast<optim::SGD*>(&optimizer) || dynamic_cast<optim::Adam*>(&optimizer) ||
         dynamic_cast<optim::AdamW*>(&optimizer) || dynamic_cast<optim::RMSprop*>(&optimizer) ||
         dynamic_cast<optim::Adagrad*>(&optimizer) || dynamic_cast<optim::LBFGS*>(&optimizer);
}

bool needs_closure(optim::Optimizer& optimizer) { return dynamic_cast<optim::LBFGS*>(&optimizer) != nullptr; }

std::vector<at::Tensor> parameters_of(optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(parameter);
    }
  }
  return all;
}

std::vector<at::Tensor> state_tensors(optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : parameters_of(optimizer)) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    for (const at::Tensor* tensor : slots_of(*found->second)) {
      if (tensor->defined()) all.push_back(*tensor);
    }
  }
  return all;
}

std::vector<guard::Hyperparameter> hyperparameters_of(optim::Optimizer& optimizer) {
  std::vector<guard::Hyperparameter> all;
  std::size_t index = 0;
  for (auto& group : optimizer.param_groups()) {
    const std::string of = index == 0 ? "" : " of group " + std::to_string(index);
    ++index;
    all.push_back({"lr" + of, group.options().get_lr()});
    if (auto* adam = dynamic_cast<optim::AdamOptions*>(&group.options())) add_adam(*adam, group, of, all);
    if (auto* adamw = dynamic_cast<optim::AdamWOptions*>(&group.options())) add_adam(*adamw, group, of, all);
    if (auto* sgd = dynamic_cast<optim::SGDOptions*>(&group.options())) {
      all.push_back({"momentum" + of, sgd->momentum()});
      all.push_back({"weight_decay" + of, sgd->weight_decay()});
    }
    if (auto* rmsprop = dynamic_cast<optim::RMSpropOptions*>(&group.options())) {
      all.push_back({"alpha" + of, rmsprop->alpha()});
      all.push_back(eps_of(rmsprop->eps(), group, of));
      all.push_back({"weight_decay" + of, rmsprop->weight_decay()});
    }
    if (auto* adagrad = dynamic_cast<optim::AdagradOptions*>(&group.options())) {
      all.push_back({"lr_decay" + of, adagrad->lr_decay()});
      all.push_back(eps_of(adagrad->eps(), group, of));
      all.push_back({"weight_decay" + of, adagrad->weight_decay()});
    }
  }
  return all;
}

}  // namespace firstfault
