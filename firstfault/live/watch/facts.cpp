#include "firstfault/live/watch/facts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "firstfault/live/watch/activations.h"

namespace firstfault::watch {
namespace {

using intercept::Frame;
using intercept::Input;
using intercept::LossFamily;
using intercept::Nonlinearity;

std::string shape_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

// Without the dims that expand() made.
std::vector<std::int64_t> unexpanded(const at::Tensor& tensor) {
  auto sizes = tensor.sizes().vec();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (tensor.strides()[d] == 0) sizes[d] = 1;
  }
  return sizes;
}

std::int64_t elements(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return count;
}

// The result has more elements than either: [N, 1] and [N] gave [N, N].
bool is_cross_product(const at::Tensor& a, const at::Tensor& b) {
  const auto as = unexpanded(a), bs = unexpanded(b);
  const auto larger = std::max(elements(as), elements(bs));
  std::int64_t result = 1;
  const auto dims = std::max(as.size(), bs.size());
  for (std::size_t d = 0; d < dims; ++d) {
    const auto x = d < as.size() ? as[as.size() - 1 - d] : 1;
    const auto y = d < bs.size() ? bs[bs.size() - 1 - d] : 1;
    result *= std::max(x, y);
  }
  return result > larger;
}

std::array<const Input*, 2> first_two(const Frame& frame) {
  std::array<const Input*, 2> found{};
  for (const Input& input : frame.inputs) {
    if (input.argument < 2 && input.item < 0) found[input.argument] = &input;
  }
  return found;
}

Fact fact_of(FactKind kind, const Frame& frame, const std::string& module) {
  Fact fact;
  fact.kind = kind;
  fact.module = module;
  fact.op = frame.traits->name;
  return fact;
}

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

}  // namespace

const Input* first_operand(const Frame& frame) {
  const bool any = !frame.inputs.empty() && frame.inputs.front().argument == 0;
  return any ? &frame.inputs.front() : nullptr;
}

std::int64_t integer_argument(const Frame& frame, std::string_view name, std::int64_t otherwise) {
  for (const auto& scalar : frame.scalars) {
    if (scalar.is_integer && frame.traits->arguments[scalar.argument] == name) {
      return static_cast<std::int64_t>(scalar.value);
    }
  }
  return otherwise;
}

void FactFinder::add(Fact fact) {
  auto key = std::make_tuple(fact.kind, fact.module, fact.op, fact.detail);
  fresh_.insert_or_assign(std::move(key), std::move(fact));
}

void FactFinder::look(const Frame& frame, const at::Tensor& output, const std::string& module) {
  const auto& op = *frame.traits;
  if (op.loss != LossFamily::none) look_at_loss(frame, module);
  if (op.nonlinearity == Nonlinearity::softmax) look_at_softmax(frame, output, module);
  if (op.routes) look_at_router(frame, module);
  const Input* operand = first_operand(frame);
  if (op.flat && operand && operand->tensor.requires_grad()) add(fact_of(FactKind::constant_op, frame, module));
  if (is_half(output)) {
    Fact fact;
    fact.kind = FactKind::low_precision;
    fact.detail = output.scalar_type() == at::kHalf ? "float16" : "bfloat16";
    add(std::move(fact));
  }
  // The difference of prediction and target by hand.
  if (op.subtracts && module.empty()) {
    const auto [a, b] = first_two(frame);
    if (!a || !b || a->tensor.requires_grad() == b->tensor.requires_grad()) return;
    const auto larger = std::max(a->tensor.dim(), b->tensor.dim());
    const bool column = larger == 2 && a->tensor.dim() + b->tensor.dim() == 3;
    if (!column || a->tensor.size(0) != b->tensor.size(0) || !is_cross_product(a->tensor, b->tensor)) return;
    Fact fact = fact_of(FactKind::loss_broadcast, frame, module);
    fact.detail = shape_text(a->tensor.sizes()) + " and " + shape_text(b->tensor.sizes());
    add(std::move(fact));
  }
}

void FactFinder::look_at_loss(const Frame& frame, const std::string& module) {
  const auto [prediction, target] = first_two(frame);
  if (!prediction || !prediction->tensor.requires_grad()) return;
  Fact loss = fact_of(FactKind::loss_op, frame, module);
  loss.numbers["elements"] = static_cast<double>(prediction->tensor.numel());
  if (frame.traits->loss == LossFamily::log_probabilities) look_at_log_probabilities(frame, loss);
  if (frame.traits->name.find("binary_cross_entropy") != std::string::npos) loss.numbers["classes"] = 2;
  const bool elementwise = frame.traits->loss == LossFamily::elementwise && target;
  if (elementwise && is_cross_product(prediction->tensor, target->tensor)) {
    Fact fact = fact_of(FactKind::loss_broadcast, frame, module);
    fact.detail = shape_text(unexpanded(prediction->tensor)) + " and " + shape_text(unexpanded(target->tensor));
    add(std::move(fact));
  }
  add(std::move(loss));
}

// Of log-probabilities the exponentials of a row sum to 1.
void FactFinder::look_at_log_probabilities(const Frame& frame, Fact& loss) {
  const at::Tensor& scores = first_operand(frame)->tensor;
  const auto dim = scores.dim() == 1 ? 0 : 1;
  loss.numbers["classes"] = static_cast<double>(scores.size(dim));
  measure::read_grid(scores, {.channel_dim = dim, .max_rows = 32, .max_channels = 4096}, grid_);
  if (grid_.values.empty() || !grid_.every_channel) return;
  std::vector<double> sums;
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t r = 0; r < grid_.rows; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < grid_.channels; ++c) {
      const double value = grid_.values[static_cast<std::size_t>(r * grid_.channels + c)];
      if (std::isnan(value)) return;  // not finite: -Inf is a probability of 0, but NaN is none at all
      sum += std::exp(value);
      largest = std::max(largest, value);
    }
    sums.push_back(sum);
  }
  std::nth_element(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(sums.size() / 2), sums.end());
  const double median = sums[sums.size() / 2];
  constexpr double kTolerance = 0.05;  // float16 keeps three digits of a log-probability
  if (std::abs(median - 1) <= kTolerance) return;
  Fact fact = fact_of(FactKind::raw_scores, frame, loss.module);
  fact.numbers = {{"max", largest}, {"row_sum", median}};
  add(std::move(fact));
}

// Attention where it is over keys of a batch of heads; a dim of one element gives 1 whatever goes in.
void FactFinder::look_at_softmax(const Frame& frame, const at::Tensor& output, const std::string& module) {
  const Input* operand = first_operand(frame);
  if (!operand || output.dim() == 0) return;
  const auto dim = integer_argument(frame, "dim", -1);
  const auto size = output.size(dim);
  if (size == 1 && operand->tensor.requires_grad()) {
    Fact fact = fact_of(FactKind::constant_op, frame, module);
    fact.detail = "softmax over one element";
    return add(std::move(fact));
  }
  if (output.dim() < 3 || size < 4) return;
  measure::read_grid(output, {.channel_dim = dim, .max_rows = 16, .max_channels = 512}, grid_);
  if (!grid_.every_channel || grid_.values.empty()) return;
  double entropy = 0;
  for (const double p : grid_.values) entropy -= p > 0 ? p * std::log(p) : 0;
  Fact fact = fact_of(FactKind::attention, frame, module);
  fact.numbers["entropy"] = entropy / static_cast<double>(grid_.rows);
  fact.numbers["keys"] = static_cast<double>(size);
  measure::read_grid(operand->tensor, {.channel_dim = dim, .max_rows = 16, .max_channels = 512}, grid_);
  double largest = 0;
  for (const double value : grid_.values) largest = std::isnan(value) ? largest : std::max(largest, std::abs(value));
  fact.numbers["logit_max"] = largest;
  // What it was at first stays beside what it is.
  const auto& first = first_attention_.try_emplace(module, fact.numbers).first->second;
  fact.numbers["entropy_first"] = first.at("entropy");
  fact.numbers["logit_max_first"] = first.at("logit_max");
  add(std::move(fact));
}

void FactFinder::look_at_router(const Frame& frame, const std::string& module) {
  const Input* operand = first_operand(frame);
  if (!operand || operand->tensor.dim() < 2 || !operand->tensor.requires_grad()) return;
  const auto dim = integer_argument(frame, "dim", -1);
  const auto experts = operand->tensor.size(dim);
  constexpr std::int64_t kMostExperts = 512;
  if (experts < 2 || experts > kMostExperts) return;
  measure::read_grid(operand->tensor, {.channel_dim = dim, .max_rows = 256, .max_channels = kMostExperts}, grid_);
  if (grid_.rows < 16) return;
  Fact fact = fact_of(FactKind::expert_share, frame, module);
  fact.numbers = {{"share", share_of_commonest(grid_)}, {"experts", static_cast<double>(experts)}};
  add(std::move(fact));
}

void FactFinder::look_backward(const at::Tensor& output) {
  if (output.scalar_type() != at::kHalf) return;
  float some[256];
  const auto count = measure::sample_into(output, some);
  half_elements_ += static_cast<std::int64_t>(count);
  half_zeros_ += std::count(some, some + count, 0.0f);
}

void FactFinder::clipped(const Clip& clip) {
  Fact fact;
  fact.kind = FactKind::clipped;
  fact.numbers["coefficient"] = clip.coefficient;
  if (std::isfinite(clip.norm)) fact.numbers["norm"] = clip.norm;
  if (std::isfinite(clip.scale)) {
    Fact scaled = fact;
    scaled.kind = FactKind::clipped_scaled;
    scaled.numbers["scale"] = clip.scale;
    add(std::move(scaled));
  }
  if (clip.coefficient < 1) add(std::move(fact));
}

std::vector<Fact> FactFinder::take(std::int64_t step, double loss_scale) {
  if (half_elements_ > 0 && half_zeros_ > 0) {
    Fact fact;
    fact.kind = FactKind::underflow;
    fact.numbers["zeros"] = static_cast<double>(half_zeros_) / static_cast<double>(half_elements_);
    fact.numbers["scale"] = loss_scale;
    add(std::move(fact));
  }
  half_zeros_ = half_elements_ = 0;
  std::vector<Fact> taken;
  for (auto& [key, fact] : fresh_) {
    fact.first_step = fact.last_step = step;
    taken.push_back(std::move(fact));
  }
  fresh_.clear();
  return taken;
}

}  // namespace firstfault::watch
