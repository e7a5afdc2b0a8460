#include "firstfault/live/optimizer_copy.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <typeinfo>

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

struct Slot {
  std::string_view name;
  at::Tensor* tensor;
};
using Slots = std::vector<Slot>;

// Pointers into a state of a known kind; nothing for another.
Slots slots_of(optim::OptimizerParamState& any) {
  const auto of_adam = [](auto& s) -> Slots {
    return {{"exp_avg", &s.exp_avg()}, {"exp_avg_sq", &s.exp_avg_sq()}, {"max_exp_avg_sq", &s.max_exp_avg_sq()}};
  };
  if (auto* s = dynamic_cast<optim::SGDParamState*>(&any)) return {{"momentum_buffer", &s->momentum_buffer()}};
  if (auto* s = dynamic_cast<optim::AdamParamState*>(&any)) return of_adam(*s);
  if (auto* s = dynamic_cast<optim::AdamWParamState*>(&any)) return of_adam(*s);
  if (auto* s = dynamic_cast<optim::RMSpropParamState*>(&any)) {
    return {{"square_avg", &s->square_avg()}, {"momentum_buffer", &s->momentum_buffer()}, {"grad_avg", &s->grad_avg()}};
  }
  if (auto* s = dynamic_cast<optim::AdagradParamState*>(&any)) return {{"sum", &s->sum()}};
  Slots slots;
  if (auto* s = dynamic_cast<optim::LBFGSParamState*>(&any)) {
    slots = {{"d", &s->d()}, {"H_diag", &s->H_diag()}, {"prev_flat_grad", &s->prev_flat_grad()}};
    for (const auto& [name, list] :
         {std::pair("old_dirs", &s->old_dirs()), {"old_stps", &s->old_stps()}, {"ro", &s->ro()}}) {
      for (at::Tensor& tensor : *list) slots.push_back({name, &tensor});
    }
    if (s->al()) {
      for (at::Tensor& tensor : *s->al()) slots.push_back({"al", &tensor});
    }
  }
  return slots;
}

using ParamState = std::unique_ptr<optim::OptimizerParamState>;

/// Into the tensors of `memory`, a copy of the same state from before, where they fit.
ParamState deep_copy(const optim::OptimizerParamState& state, ParamState memory = nullptr) {
  auto copy = state.clone();
  const Slots slots = slots_of(*copy), old = memory ? slots_of(*memory) : Slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    at::Tensor& tensor = *slots[i].tensor;
    const bool fits = old.size() == slots.size() && tensor.defined() && old[i].tensor->defined();
    tensor = fits ? guard::copied_into(*old[i].tensor, tensor) : guard::unseen_copy(tensor);
  }
  return copy;
}

// A number of a group, where it is kept.
struct Number {
  const char* name;
  double* value;
};

// Beside the learning rate.
std::vector<Number> numbers_of(optim::OptimizerOptions& any) {
  const auto of_adam = [](auto& o) -> std::vector<Number> {
    auto& [first, second] = o.betas();
    return {{"betas[0]", &first}, {"betas[1]", &second}, {"eps", &o.eps()}, {"weight_decay", &o.weight_decay()}};
  };
  if (auto* o = dynamic_cast<optim::AdamOptions*>(&any)) return of_adam(*o);
  if (auto* o = dynamic_cast<optim::AdamWOptions*>(&any)) return of_adam(*o);
  if (auto* o = dynamic_cast<optim::SGDOptions*>(&any)) {
    return {{"momentum", &o->momentum()}, {"weight_decay", &o->weight_decay()}};
  }
  if (auto* o = dynamic_cast<optim::RMSpropOptions*>(&any)) {
    return {{"alpha", &o->alpha()}, {"eps", &o->eps()}, {"weight_decay", &o->weight_decay()}};
  }
  if (auto* o = dynamic_cast<optim::AdagradOptions*>(&any)) {
    return {{"lr_decay", &o->lr_decay()}, {"eps", &o->eps()}, {"weight_decay", &o->weight_decay()}};
  }
  return {};
}

guard::UpdateNumbers numbers_for_bound(const optim::OptimizerOptions& any) {
  using guard::UpdateRule;
  const auto of_adam = [](const auto& o, bool decoupled) -> guard::UpdateNumbers {
    const auto& [first, second] = o.betas();
    return {.rule = UpdateRule::adam,
            .weight_decay = o.weight_decay(),
            .eps = o.eps(),
            .beta1 = first,
            .beta2 = second,
            .decoupled = decoupled};
  };
  if (auto* o = dynamic_cast<const optim::AdamOptions*>(&any)) return of_adam(*o, false);
  if (auto* o = dynamic_cast<const optim::AdamWOptions*>(&any)) return of_adam(*o, true);
  if (auto* o = dynamic_cast<const optim::SGDOptions*>(&any)) {
    return {.rule = UpdateRule::sgd,
            .weight_decay = o->weight_decay(),
            .momentum = o->momentum(),
            .dampening = o->dampening()};
  }
  if (auto* o = dynamic_cast<const optim::RMSpropOptions*>(&any)) {
    return {.rule = o->centered() ? UpdateRule::unknown : UpdateRule::rmsprop,
            .weight_decay = o->weight_decay(),
            .eps = o->eps(),
            .momentum = o->momentum(),
            .alpha = o->alpha()};
  }
  if (auto* o = dynamic_cast<const optim::AdagradOptions*>(&any)) {
    return {.rule = o->lr_decay() < 0 ? UpdateRule::unknown : UpdateRule::adagrad,
            .weight_decay = o->weight_decay(),
            .eps = o->eps()};
  }
  return {};
}

std::string suffix_of(std::size_t group) { return group == 0 ? "" : " of group " + std::to_string(group); }

}  // namespace

struct OptimizerCopy::State {
  optim::Optimizer& optimizer;
  guard::Copies parameters;
  std::vector<std::unique_ptr<optim::OptimizerOptions>> options;
  std::map<void*, ParamState> state;
  std::int64_t bytes = 0;

  void take();
};

/// All but the parameters.
void OptimizerCopy::State::take() {
  options.clear();
  for (const auto& group : optimizer.param_groups()) options.push_back(group.options().clone());
  bytes = parameters.bytes();
  std::map<void*, ParamState> memory = std::exchange(state, {});
  for (const auto& [key, value] : optimizer.state()) {
    const auto& copy = state[key] = deep_copy(*value, std::move(memory[key]));
    for (const Slot& slot : slots_of(*copy)) {
      if (slot.tensor->defined()) bytes += static_cast<std::int64_t>(slot.tensor->nbytes());
    }
  }
}

OptimizerCopy::OptimizerCopy(optim::Optimizer& optimizer)
    : state_(std::make_unique<State>(State{optimizer, guard::Copies(parameters_of(optimizer)), {}, {}, 0})) {
  state_->take();
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

void OptimizerCopy::renew() {
  auto parameters = parameters_of(state_->optimizer);
  const auto& known = state_->parameters.tensors();
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  if (std::equal(parameters.begin(), parameters.end(), known.begin(), known.end(), same)) {
    state_->parameters.renew();
  } else {
    state_->parameters = guard::Copies(std::move(parameters));
  }
  state_->take();
}

std::int64_t OptimizerCopy::bytes() const noexcept { return state_->bytes; }

bool is_known(optim::Optimizer& optimizer) {
  return dynamic_cast<optim::SGD*>(&optimizer) || dynamic_cast<optim::Adam*>(&optimizer) ||
         dynamic_cast<optim::AdamW*>(&optimizer) || dynamic_cast<optim::RMSprop*>(&optimizer) ||
         dynamic_cast<optim::Adagrad*>(&optimizer) || dynamic_cast<optim::LBFGS*>(&optimizer);
}

bool writes_by_ops_only(optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  return type == typeid(optim::SGD) || type == typeid(optim::Adam) || type == typeid(optim::AdamW) ||
         type == typeid(optim::RMSprop) || type == typeid(optim::Adagrad);
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

std::vector<StateTensor> state_tensors(optim::Optimizer& optimizer) {
  std::vector<StateTensor> all;
  const auto parameters = parameters_of(optimizer);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    for (const auto& [name, tensor] : slots_of(*found->second)) {
      if (tensor->defined()) all.push_back({name, i, *tensor});
    }
  }
  return all;
}

std::vector<guard::UpdateNumbers> update_numbers(optim::Optimizer& optimizer) {
  std::vector<guard::UpdateNumbers> all;
  for (auto& group : optimizer.param_groups()) {
    auto& one = all.emplace_back();
    if (!writes_by_ops_only(optimizer)) continue;
    one = numbers_for_bound(group.options());
    one.lr = group.options().get_lr();
    if (!group.params().empty()) one.eps = measure::eps_as_held(one.eps, group.params().front().scalar_type());
  }
  return all;
}

std::vector<guard::Hyperparameter> hyperparameters_of(optim::Optimizer& optimizer) {
  std::vector<guard::Hyperparameter> all;
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& parameters = groups[i].params();
    all.push_back({"lr" + suffix_of(i), groups[i].options().get_lr()});
    for (const auto& [name, value] : numbers_of(groups[i].options())) {
      const bool is_eps = name == std::string_view("eps");
      const bool rounds = is_eps && !parameters.empty();
      const double held = rounds ? measure::eps_as_held(*value, parameters.front().scalar_type()) : *value;
      all.push_back({name + suffix_of(i), *value, held, is_eps});
    }
  }
  return all;
}

SoundHyperparameters sound_hyperparameters(optim::Optimizer& optimizer,
                                           const std::vector<guard::Hyperparameter>& usual) {
  SoundHyperparameters sound;
  for (const guard::Hyperparameter& one : hyperparameters_of(optimizer)) {
    const auto before =
        std::find_if(usual.begin(), usual.end(), [&](const auto& other) { return other.name == one.name; });
    const auto known = before == usual.end() ? std::nullopt : std::optional(before->value);
    if (const auto value = guard::sound_value(one, known)) sound.emplace_back(one, *value);
  }
  return sound;
}

void set_weight_decay(optim::Optimizer& optimizer, double value) {
  for (auto& group : optimizer.param_groups()) {
    for (const auto& [name, place] : numbers_of(group.options())) {
      if (name == std::string_view("weight_decay")) *place = value;
    }
  }
}

void set_hyperparameters(optim::Optimizer& optimizer, const SoundHyperparameters& sound) {
  auto& groups = optimizer.param_groups();
  for (const auto& [one, value] : sound) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (one.name == "lr" + suffix_of(i)) groups[i].options().set_lr(value);
      for (const auto& [name, place] : numbers_of(groups[i].options())) {
        if (one.name == name + suffix_of(i)) *place = value;
      }
    }
  }
}

}  // namespace firstfault
