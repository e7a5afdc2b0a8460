// Sorts gradients by what can reach them, and runs the kernels over those in memory, in pieces.
#include "firstfault/live/guard/gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>

#include "firstfault/live/guard/pieces.h"
#include "firstfault/live/measure/elements.h"

namespace firstfault::guard {
namespace {

std::optional<Number> number_of(at::ScalarType type) {
  switch (c10::toRealValueType(type)) {
    case at::kFloat: return Number::fp32;
    case at::kDouble: return Number::fp64;
    case at::kHalf: return Number::fp16;
    case at::kBFloat16: return Number::bf16;
    default: return std::nullopt;
  }
}

// No two of its indices lead to one place; in-place ops refuse what is not so. A run of solid memory has no other.
bool separate(const measure::Memory& memory) {
  if (memory.dense) return true;
  c10::SmallVector<std::pair<std::int64_t, std::int64_t>, 8> dims;  // stride, size
  for (std::size_t d = 0; d < memory.sizes.size(); ++d) {
    if (memory.sizes[d] > 1) dims.emplace_back(memory.strides[d], memory.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

// What is done here is the same to a number and its negative or conjugate; some ops refuse the lazy ones.
at::Tensor without_lazy_bits(at::Tensor tensor) {
  if (tensor.is_conj()) tensor = tensor.conj();
  if (tensor.is_neg()) tensor = tensor._neg_view();
  return tensor;
}

void find_values(Gradient& gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor& tensor = gradient.tensor;
  switch (tensor.layout()) {
    case at::kSparse:
      if (!tensor.is_coalesced()) gradient.summed = tensor.coalesce();
      gradient.values = (gradient.summed.defined() ? gradient.summed : tensor)._values();
      return;
    case at::kSparseCsr:
    case at::kSparseCsc:
    case at::kSparseBsr:
    case at::kSparseBsc: gradient.values = tensor.values(); return;
    default: gradient.values = without_lazy_bits(tensor);
  }
}

// What a piece of a gradient adds: x^2, |x|, or (|x| / unit)^p; or its largest.
struct Adding {
  double p = 2;
  bool largest = false;

  double operator()(const Gradient& gradient, const void* data, std::size_t n, double unit) const {
    if (largest) return largest_magnitude(gradient.number, data, n);
    if (unit > 0) return sum_of_powers(gradient.number, data, n, unit, p);
    return p == 1 ? sum_of_magnitudes(gradient.number, data, n) : sum_of_squares(gradient.number, data, n);
  }
  double join(double a, double b) const {
    if (!largest) return a + b;
    return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
  }
};

// A complex element's magnitude is not its parts'; only squares add up as well by parts.
double complex_amount(const Gradient& gradient, const Adding& adding, double unit) {
  double amount = 0;
  measure::with_element(gradient.memory.type, [&](auto element) {
    using Element = decltype(element);
    for_each_run(gradient.memory, [&](const std::byte* data, std::size_t parts) {
      for (std::size_t i = 0; i < parts / 2; ++i) {
        const double magnitude = Element::value(data + i * Element::kBytes);
        const double part = unit > 0 ? std::pow(magnitude / unit, adding.p) : magnitude;
        amount = adding.join(amount, part);
      }
    });
  });
  return amount;
}

double whole_amount(const Gradient& gradient, const Adding& adding, double unit) {
  if (gradient.complex && (adding.largest || adding.p != 2)) return complex_amount(gradient, adding, unit);
  double amount = 0;
  for_each_run(gradient.memory, [&](const std::byte* data, std::size_t n) {
    amount = adding.join(amount, adding(gradient, data, n, unit));
  });
  return amount;
}

struct Piece {
  std::size_t gradient = 0;
  std::byte* data = nullptr;  // null: all of it, by its runs
  std::size_t n = 0;
  double amount = 0;
};

constexpr std::size_t kPiece = 256 * 1024;  // elements; sums do not depend on the number of threads

void add_pieces(const Gradient& gradient, std::size_t at, std::vector<Piece>& pieces) {
  if (!gradient.memory.dense || gradient.complex) {
    pieces.push_back({at});
    return;
  }
  const auto numel = static_cast<std::size_t>(gradient.memory.numel);
  auto* data = const_cast<std::byte*>(gradient.memory.data);
  for (std::size_t begin = 0; begin < numel; begin += kPiece) {
    pieces.push_back({at, data + begin * bytes_of(gradient.number), std::min(kPiece, numel - begin)});
  }
}

std::vector<Piece> pieces_of(const std::vector<Gradient>& gradients) {
  std::vector<Piece> pieces;
  pieces.reserve(gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].in_memory()) add_pieces(gradients[i], i, pieces);
  }
  return pieces;
}

// Threads only where there is work for them.
template <class Work>
void run_pieces(std::vector<Piece>& pieces, Work&& work) {
  std::size_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.n;
  if (elements > kPiece) return for_each_piece(pieces.size(), [&](std::size_t i) { work(pieces[i]); });
  for (Piece& piece : pieces) work(piece);
}

std::vector<double> amounts(const std::vector<Gradient>& gradients, const Adding& adding,
                            const std::vector<double>& units) {
  auto pieces = pieces_of(gradients);
  run_pieces(pieces, [&](Piece& piece) {
    const Gradient& gradient = gradients[piece.gradient];
    const double unit = units.empty() ? 0 : units[piece.gradient];
    piece.amount = piece.data ? adding(gradient, piece.data, piece.n, unit) : whole_amount(gradient, adding, unit);
  });
  std::vector<double> result(gradients.size(), 0);
  for (const Piece& piece : pieces) result[piece.gradient] = adding.join(result[piece.gradient], piece.amount);
  return result;
}

// By powers of the part of the largest magnitude: cannot overflow.
std::vector<double> norms_by_unit(const std::vector<Gradient>& gradients, double p) {
  const auto largest = amounts(gradients, {.largest = true}, {});
  auto units = largest;
  for (double& unit : units) unit = unit > 0 && std::isfinite(unit) ? unit : 1;
  auto norms = amounts(gradients, {.p = p}, units);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    norms[i] = std::isfinite(largest[i]) ? units[i] * std::pow(norms[i], 1 / p) : largest[i];
  }
  return norms;
}

// float64 alone can leave the range of the sums, upwards and, squared, downwards.
bool in_range(const Gradient& gradient, double sum, double p) {
  return gradient.number != Number::fp64 || (std::isfinite(sum) && (p == 1 || sum > kLeastSquares));
}

}  // namespace

void find_memory(Gradient& gradient) {
  const auto memory = measure::memory_of(gradient.values);
  if (!memory || !separate(*memory)) return;
  const auto number = number_of(memory->type);
  if (!number) return;
  gradient.memory = *memory;
  gradient.number = *number;
  gradient.complex = c10::isComplexType(memory->type);
}

at::Tensor own_values(const Gradient& gradient) {
  return gradient.summed.defined() ? gradient.tensor._values() : gradient.values;
}

std::vector<at::Tensor> gradients_of(at::TensorList parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.defined() ? parameter.grad() : at::Tensor());
  }
  return gradients;
}

std::vector<Gradient> collect(at::TensorList gradients, bool by_aten) {
  std::vector<Gradient> result;
  result.reserve(gradients.size());
  std::unordered_set<const at::TensorImpl*> seen;
  seen.reserve(gradients.size());
  std::int64_t index = -1;
  for (const at::Tensor& tensor : gradients) {
    ++index;
    if (!tensor.defined() || tensor.is_meta() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    Gradient gradient;
    gradient.index = index;
    gradient.tensor = tensor;
    find_values(gradient);
    if (gradient.values.numel() == 0) continue;
    if (!by_aten) find_memory(gradient);
    result.push_back(std::move(gradient));
  }
  return result;
}

void make_writable(Gradient& gradient) {
  at::TensorImpl& impl = *gradient.values.unsafeGetTensorImpl();
  gradient.memory.data = static_cast<const std::byte*>(impl.mutable_data());
  if (!gradient.tensor.is_inference()) gradient.tensor.unsafeGetTensorImpl()->bump_version();
}

std::vector<double> norms_of(const std::vector<Gradient>& gradients, double p) {
  if (std::isinf(p)) return amounts(gradients, {.largest = true}, {});
  const bool plain = std::all_of(gradients.begin(), gradients.end(), [&](const Gradient& one) {
    return p == 2 || (p == 1 && !one.complex) || !one.in_memory();
  });
  if (!plain) return norms_by_unit(gradients, p);
  auto norms = amounts(gradients, {.p = p}, {});
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (!in_range(gradients[i], norms[i], p)) {
      norms[i] = norms_by_unit({gradients[i]}, p).front();
    } else if (p == 2) {
      norms[i] = std::sqrt(norms[i]);
    }
  }
  return norms;
}

double norm_of_norms(const std::vector<double>& norms, double p) {
  double most = 0;
  for (const double norm : norms) {
    if (std::isnan(norm)) return norm;
    most = std::max(most, norm);
  }
  if (most == 0 || std::isinf(most) || std::isinf(p)) return most;
  double sum = 0;
  for (const double norm : norms) sum += std::pow(norm / most, p);
  return most * std::pow(sum, 1 / p);
}

void scale_all(std::vector<Gradient>& gradients, double factor) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> others;
  for (Gradient& gradient : gradients) {
    if (gradient.summed.defined()) {  // as they stand: scaling is linear
      gradient.values = own_values(gradient);
      gradient.summed.reset();
      if (gradient.in_memory()) find_memory(gradient);
    }
    gradient.in_memory() ? make_writable(gradient) : others.push_back(gradient.values);
  }
  auto pieces = pieces_of(gradients);
  std::reverse(pieces.begin(), pieces.end());  // what was read last is still in the cache
  run_pieces(pieces, [&](Piece& piece) {
    const Gradient& gradient = gradients[piece.gradient];
    if (piece.data) return scale(gradient.number, piece.data, piece.n, factor);
    for_each_run(gradient.memory, [&](std::byte* data, std::size_t n) { scale(gradient.number, data, n, factor); });
  });
  if (!others.empty()) at::_foreach_mul_(others, factor);
}

void set_zero(Gradient& gradient) {
  const at::NoGradGuard no_grad;
  gradient.tensor.zero_();
}

}  // namespace firstfault::guard
