#include "firstfault/live/guard/experiments/op_repair.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>

#include "firstfault/live/intercept/frame.h"
#include "firstfault/live/intercept/op_traits.h"

namespace firstfault::guard {
namespace {

std::atomic<OpRepairs*> current{nullptr};

void each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) return visit(value.toTensor());
  if (!value.isTensorList()) return;
  for (const c10::IValue& one : value.toListRef()) visit(one.toTensor());
}

bool starts_with_nll(const std::string& op) {
  return op == "aten::nll_loss_forward" || op == "aten::nll_loss2d_forward";
}

}  // namespace

struct OpRepairs::Here : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> OpRepairs::on_start(const at::RecordFunction& record) {
  OpRepairs* self = current.load();
  const intercept::OpTraits& traits = intercept::traits_of(record);
  if (self == nullptr || traits.kind == intercept::OpKind::other) return nullptr;
  const std::int64_t number = ++self->ops_;
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  for (const OpRepair& repair : self->repairs_) {
    const auto arguments = intercept::arguments_of(traits, record);
    if (repair.what == OpRepair::What::log_probabilities && starts_with_nll(traits.name)) {
      const at::Tensor scores = arguments[0].toTensor();
      scores.copy_(at::log_softmax(scores, scores.dim() == 1 ? 0 : 1));
      ++self->changed_;
    } else if (repair.what == OpRepair::What::operand && repair.number == number) {
      self->changed_ += make_ordinary(traits.name, arguments);
    } else if (repair.what == OpRepair::What::result && repair.number == number) {
      return std::make_unique<Here>();
    }
  }
  return nullptr;
}

void OpRepairs::on_end(const at::RecordFunction& record, at::ObserverContext* context) {
  OpRepairs* self = current.load();
  if (self == nullptr || context == nullptr) return;
  const intercept::OpTraits& traits = intercept::traits_of(record);
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto repair = [&](const at::Tensor& tensor) { self->changed_ += make_finite(tensor); };
  const auto results = intercept::results_of(traits, record);
  for (const c10::IValue& value : results) each_tensor(value, repair);
  if (!results.empty() || !traits.mutates) return;
  const auto arguments = intercept::arguments_of(traits, record);  // a foreach op gives nothing back
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (traits.writes(static_cast<int>(i))) each_tensor(arguments[i], repair);
  }
}

void OpRepairs::start() {
  ops_ = 0;
  changed_ = 0;
  current.store(this);
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                      .needsInputs(true)
                                      .needsOutputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

void OpRepairs::stop() {
  if (handle_ != 0) at::removeCallback(handle_);
  handle_ = 0;
  OpRepairs* self = this;
  current.compare_exchange_strong(self, nullptr);
}

}  // namespace firstfault::guard
