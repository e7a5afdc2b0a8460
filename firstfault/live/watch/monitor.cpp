// The monitor between ops: what is measured as the observer sees it.
#include "firstfault/live/watch/monitor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/evidence/collect.h"
#include "firstfault/live/trace/tracer_detail.h"
#include "firstfault/live/watch/batch.h"

namespace firstfault::watch {
namespace {

using intercept::Frame;
using intercept::Input;
using intercept::Nonlinearity;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr char kAccumulate[] = "torch::autograd::AccumulateGrad";

double single_value(const Frame& frame, int argument) {
  for (const Input& input : frame.inputs) {
    if (input.argument == argument && input.tensor.numel() == 1) return measure::value_at(input.tensor, 0);
  }
  for (const auto& scalar : frame.scalars) {
    if (scalar.argument == argument) return scalar.value;
  }
  return StepRow::kUnknown;
}

std::uintptr_t signature_of(const at::Tensor& tensor) {
  auto hash = static_cast<std::uintptr_t>(tensor.scalar_type());
  for (std::int64_t d = 1; d < tensor.dim(); ++d) hash = hash * 1'000'003 + static_cast<std::uintptr_t>(tensor.size(d));
  return hash * 16 + static_cast<std::uintptr_t>(tensor.dim());
}

Site site_of(SiteRole role, const at::Tensor& tensor) {
  Site site;
  site.role = role;
  site.dtype = trace::evidence::dtype_name(tensor.scalar_type());
  site.shape = tensor.sizes().vec();
  return site;
}

}  // namespace

void Monitor::on_op_start(Frame& frame, const at::RecordFunction& record) { tracer_.on_op_start(frame, record); }

void Monitor::on_op_end(Frame& frame, const at::RecordFunction& record) {
  tracer_.on_op_end(frame, record);
  if (frame.is_compute() && !frame.hidden && frame.observed) look(frame, record);
  settle_steps();
}

void Monitor::on_node_start(Frame& frame) {
  tracer_.on_node_start(frame);
  if (tracer_.begins_backward()) note_backward(frame);
  if (frame.sequence < 0 && std::strncmp(frame.record->name(), kAccumulate, sizeof(kAccumulate) - 1) == 0) {
    note_accumulation();
  }
  settle_steps();
}

void Monitor::on_node_end(Frame& frame) { tracer_.on_node_end(frame); }

void Monitor::on_other_end(Frame& frame, const at::RecordFunction& record) { tracer_.on_other_end(frame, record); }

void Monitor::on_optimizer(bool begins) {
  in_optimizer_.store(begins, kRelaxed);
  tracer_.on_optimizer(begins);
  settle_steps();
}

void Monitor::look(Frame& frame, const at::RecordFunction& record) {
  const auto& op = *frame.traits;
  if (op.amp_check || op.amp_update) return look_at_scaler(frame);
  if (intercept::frames().in_backward()) return look_backward(frame, record);
  if (!c10::GradMode::is_enabled()) return look_at_clipping(frame);
  const Phase phase = tracer_.phase();
  if (phase == Phase::forward) look_forward(frame, record);
}

void Monitor::look_backward(const Frame& frame, const at::RecordFunction& record) {
  const auto& op = *frame.traits;
  auto& stack = intercept::frames();
  const Frame& around = stack[stack.depth() - 1];
  const bool in_time = recurrent_.load(kRelaxed) && around.type == Frame::Type::node && op.name.ends_with("_backward");
  if ((!in_time && !half_seen_.load(kRelaxed)) || op.composite) return;
  const at::Tensor* output = trace::first_tensor(frame, record);
  if (!output || (!in_time && output->scalar_type() != at::kHalf)) return;
  const std::lock_guard lock(mutex_);
  if (in_time) in_time_.came_back(around.sequence, around.forward_thread, *output);
  if (half_seen_.load(kRelaxed)) facts_.look_backward(*output);
}

void Monitor::look_at_scaler(const Frame& frame) {
  const std::lock_guard lock(mutex_);
  if (frame.traits->amp_check) {
    constexpr int kInverseScale = 2;
    const double inverse = single_value(frame, kInverseScale);
    if (inverse > 0) row_.loss_scale = loss_scale_ = 1 / inverse;
    amp_checked_ = true;
  } else {
    const double scale = single_value(frame, 0);
    if (scale > 0) loss_scale_ = scale;
  }
}

// clip_grad_norm_ multiplies by a coefficient of at most 1, also where it need not.
void Monitor::look_at_clipping(const Frame& frame) {
  if (!frame.traits->rescales || frame.inputs.empty()) return;
  if (in_optimizer_.load(kRelaxed)) return;
  const double coefficient = single_value(frame, 1);
  if (!(coefficient > 0 && coefficient <= 1)) return;
  const std::lock_guard lock(mutex_);
  if (accumulations_ == 0 || !parameters_.has_gradient(frame.inputs.front().tensor)) return;
  const bool scaled = loss_scale_ > 1 && !amp_checked_;
  facts_.clipped({StepRow::kUnknown, coefficient, scaled ? loss_scale_ : StepRow::kUnknown});
}

// In which order the modules run is asked until all have run, or a few steps have passed.
void Monitor::note_order(const Frame& frame) {
  const auto module = tracer_.module_of(frame);
  if (module < 0) return;
  const std::lock_guard lock(mutex_);
  order_of(module);
}

void Monitor::look_forward(Frame& frame, const at::RecordFunction& record) {
  const auto& op = *frame.traits;
  if (ordering_.load(kRelaxed)) note_order(frame);
  look_at_batch(frame);
  const at::Tensor* output = trace::first_tensor(frame, record);
  if (!output || !output->has_storage() || !output->is_floating_point()) return;
  const bool measuring = measuring_.load(kRelaxed);
  const bool measured = measuring && op.nonlinearity != Nonlinearity::none && output->requires_grad();
  const bool half = measuring && output->itemsize() == 2;
  const bool scalar = output->numel() == 1 && output->requires_grad();
  const bool told =
      measuring && (op.loss != intercept::LossFamily::none || op.flat || op.routes || half || op.subtracts);
  const bool is_loss = measuring && op.loss != intercept::LossFamily::none;
  if (!measured && !told && !scalar) return;
  const auto module = tracer_.module_of(frame);
  const auto after = tracer_.last_module();
  const std::lock_guard lock(mutex_);
  row_open_ = true;
  if (half) half_seen_.store(true, kRelaxed);
  if (module >= 0) order_of(module);
  if (scalar) remember_scalar(frame, *output);
  if (measured) measure_activation(frame, *output, {module, after});
  if (measured) follow_in_time(frame, *output, module);
  if (is_loss && output->numel() == 1) loss_op_value_ = measure::value_at(*output, 0);
  if (told || measured) facts_.look(frame, *output, module_name(module));
  const Input* prediction = is_loss ? first_operand(frame) : nullptr;
  if (prediction && prediction->tensor.requires_grad()) measure_prediction(prediction->tensor);
}

void Monitor::measure_activation(const Frame& frame, const at::Tensor& output, Where where) {
  const auto& op = *frame.traits;
  const bool leaf = where.module >= 0 && leaf_[static_cast<std::size_t>(where.module)];
  const SiteKey key{SiteRole::activation, where.module, reinterpret_cast<std::uintptr_t>(&op), leaf ? -1 : where.after};
  const auto index = sites_.find(key, [&] {
    Site site = site_of(SiteRole::activation, output);
    site.op = op.name;
    site.module = module_name(where.module);
    site.order = where.module >= 0 ? order_of(where.module) : where.after >= 0 ? order_of(where.after) : next_order_;
    site.name = site.module;
    if (!leaf) {
      site.name += (site.name.empty() ? "" : ": ") + std::string(intercept::base_name(op.name));
      if (where.after >= 0) site.name += " after " + module_name(where.after);
    }
    return site;
  });
  if (index < 0) return;
  put(index, activations_.measure(index, op.nonlinearity, output, integer_argument(frame, "dim", -1)));
}

void Monitor::follow_in_time(const Frame& frame, const at::Tensor& output, std::int32_t module) {
  const auto* node = trace::node_of(output, frame.traits->mutates);
  if (!node || frame.traits->nonlinearity == Nonlinearity::softmax) return;
  if (in_time_.called(module, *frame.traits, output, *node)) recurrent_.store(true, kRelaxed);
}

void Monitor::measure_prediction(const at::Tensor& prediction) {
  const auto index = sites_.find({SiteRole::activation, -1, 0, -1}, [&] {
    Site site = site_of(SiteRole::activation, prediction);
    site.name = "output";
    site.order = next_order_;
    return site;
  });
  if (index >= 0) put(index, activations_.measure(index, Nonlinearity::none, prediction, -1));
}

void Monitor::remember_scalar(const Frame& frame, const at::Tensor& output) {
  const auto* node = trace::node_of(output, frame.traits->mutates);
  if (!node || node->sequence_nr() == UINT64_MAX || !measure::can_scan(output)) return;  // of another device: not read
  const auto sequence = static_cast<std::int64_t>(node->sequence_nr());
  scalars_[static_cast<std::size_t>(sequence) % scalars_.size()] = {sequence, measure::value_at(output, 0),
                                                                    frame.traits};
}

// Floating-point tensors that were there before the model ran: those that its modules read are inputs, the others
// targets.
void Monitor::look_at_batch(const Frame& frame) {
  for (const Input& input : frame.inputs) {
    const at::Tensor& tensor = input.tensor;
    const bool candidate = input.floating && !input.written && !tensor.requires_grad() && tensor.dim() > 0 &&
                           tensor.numel() > 1 && !tensor.is_complex();
    if (!candidate || batch_full_.load(kRelaxed)) continue;
    {
      const std::lock_guard lock(mutex_);
      const auto* impl = tensor.unsafeGetTensorImpl();
      if (std::find(batch_seen_.begin(), batch_seen_.end(), impl) != batch_seen_.end()) continue;
      batch_seen_.push_back(impl);
      constexpr std::size_t kMost = 32;
      batch_full_.store(batch_seen_.size() >= kMost, kRelaxed);
    }
    if (!tracer_.is_from_before_the_model(tensor)) continue;
    const auto module = tracer_.module_of(frame);
    const bool beside_gradient = std::any_of(frame.inputs.begin(), frame.inputs.end(), [&](const Input& other) {
      return other.tensor.requires_grad() && !trace::is_leaf_parameter(other.tensor);
    });
    const std::lock_guard lock(mutex_);
    row_open_ = true;
    measure_batch(tensor, module < 0 && beside_gradient ? SiteRole::target : SiteRole::input);
  }
}

void Monitor::measure_batch(const at::Tensor& tensor, SiteRole role) {
  const auto index = sites_.find({role, -1, signature_of(tensor), -1}, [&] {
    Site site = site_of(role, tensor);
    site.name = std::string(name_of(role)) + " " + std::to_string(batch_sites_[role == SiteRole::target]++);
    return site;
  });
  if (index < 0) return;
  const auto [usual, fresh] = usual_absmax_.try_emplace(index, Health::kAbsent);
  const Health health = batch_health(tensor, usual->second);
  if (health.row < 0) usual->second = health.absmax;
  put(index, health);
}

void Monitor::note_backward(const Frame& frame) {
  const std::lock_guard lock(mutex_);
  const Scalar& scalar = scalars_[static_cast<std::size_t>(frame.sequence) % scalars_.size()];
  in_time_.begin_backward();
  batch_seen_.clear();  // the next micro-batch may lie where this one did
  batch_full_.store(false, kRelaxed);
  root_pending_ = true;
  pending_root_ = scalar.sequence == frame.sequence ? scalar : Scalar{};
}

// What autograd.grad() computes, as a gradient penalty does, arrives in no parameter: it is no backward of the step.
void Monitor::note_accumulation() {
  const std::lock_guard lock(mutex_);
  row_open_ = true;
  if (accumulations_++ == 0) parameters_.look_for_left_over();
  if (!std::exchange(root_pending_, false)) return;
  ++row_.backwards;
  if (pending_root_.op) {
    roots_.push_back(pending_root_.value);
    if (loss_op_value_ != 0) loss_factor_ = pending_root_.value / loss_op_value_;
    root_op_ = pending_root_.op;
  }
}

std::int32_t Monitor::order_of(std::int32_t module) {
  auto& order = order_[static_cast<std::size_t>(module)];
  if (order < 0) order = next_order_++;
  return order;
}

std::string Monitor::module_name(std::int32_t module) const {
  return module < 0 ? std::string() : modules_[static_cast<std::size_t>(module)];
}

void Monitor::put(std::int32_t site, const Health& health) {
  const auto at = static_cast<std::size_t>(site);
  if (row_.sites.size() <= at) row_.sites.resize(at + 1);
  merge(row_.sites[at], health);
}

}  // namespace firstfault::watch
