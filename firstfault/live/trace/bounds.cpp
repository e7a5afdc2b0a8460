// One rule per op or family of ops; which op has which is in the op lists. Arguments are known by their place in the
// schema. Rounding is small against the slack that finished() adds, and that against kMostBound.
#include "firstfault/live/trace/bounds.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

namespace firstfault::trace {
namespace {

using intercept::BoundRule;
using intercept::Frame;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Range {
  double most = kInf;
  double least = -kInf;
};

constexpr double kSlack = 1e-3;
constexpr double kMostIntermediate = 1e36;  ///< of what a kernel computes on the way

Range within(double most) { return {most, -most}; }

Range finished(Range range) { return {range.most * (1 + kSlack), range.least - kSlack * std::abs(range.least)}; }

/// An op's arguments, by place.
class Arguments {
 public:
  Arguments(const Frame& frame, c10::ArrayRef<Bounds> operands) : frame_(frame), operands_(operands) {}

  /// A tensor or a number; unknown where there is neither.
  Range operator[](int place) const {
    for (std::size_t i = 0; i < frame_.inputs.size(); ++i) {
      if (frame_.inputs[i].argument == place) return input(i);
    }
    const auto value = number(place);
    if (!value) return {};
    const double size = std::abs(*value), rounding = 1e-6 * size;  // to float32
    return {size + rounding, *value - rounding};
  }
  double most(int place) const { return (*this)[place].most; }
  /// 0 where a tensor that need not be given is not.
  double most_or_none(int place) const { return tensor(place) ? most(place) : 0; }

  const at::Tensor* tensor(int place) const {
    for (const auto& input : frame_.inputs) {
      if (input.argument == place) return &input.tensor;
    }
    return nullptr;
  }
  std::optional<double> number(int place) const {
    for (const auto& scalar : frame_.scalars) {
      if (scalar.argument == place) return scalar.value;
    }
    return {};
  }
  double number_or(int place, double otherwise) const { return number(place).value_or(otherwise); }

  /// Of all floating tensors that are read; `numbers`: and of the numbers among the arguments.
  Range all(bool numbers) const {
    Range range{0, kInf};
    for (std::size_t i = 0; i < frame_.inputs.size(); ++i) {
      const auto& input = frame_.inputs[i];
      if (input.written && frame_.traits->overwrites(input.argument)) continue;
      if (!input.floating && chooses(frame_.traits->arguments[static_cast<std::size_t>(input.argument)])) continue;
      const Range one = this->input(i);
      range.most = std::max(range.most, one.most);
      range.least = std::min(range.least, one.least);
    }
    for (const auto& scalar : frame_.scalars) {
      if (!numbers) break;
      range.most = std::max(range.most, std::abs(scalar.value));
      range.least = std::min(range.least, scalar.value);
      if (std::isnan(scalar.value)) return {};
    }
    return range.least == kInf ? Range{} : range;
  }

  bool same(int place, int other) const {
    const at::Tensor *one = tensor(place), *two = tensor(other);
    return one && two && one->is_same(*two);
  }

 private:
  /// What an integer or boolean tensor is for, where it is no operand.
  static bool chooses(std::string_view argument) {
    return argument == "indices" || argument == "index" || argument == "mask" || argument == "condition";
  }

  // What is larger is as good as unknown: a kernel may multiply two of them.
  Range input(std::size_t i) const {
    const Bounds& one = operands_[i];
    return one.most <= kMostBound ? Range{one.most, one.least} : Range{};
  }

  const Frame& frame_;
  c10::ArrayRef<Bounds> operands_;
};

double elements(const at::Tensor* tensor) { return tensor ? static_cast<double>(tensor->numel()) : kInf; }

double size(const at::Tensor* tensor, std::int64_t dim) {
  const bool has = tensor && tensor->dim() >= (dim < 0 ? -dim : dim + 1);
  return has ? static_cast<double>(tensor->size(dim)) : kInf;
}

Range scaled(Range range, double by) {
  const double least = by >= 0 ? range.least * by : -range.most * std::abs(by);
  return {range.most * std::abs(by), by == 0 ? 0 : least};
}

// What cancels leaves an error of the size of the operands.
Range sum(Range a, Range b) {
  const double error = kSlack * (std::abs(a.least) + std::abs(b.least));
  return {a.most + b.most, a.least + b.least - error};
}

Range product(Range a, Range b) {
  const double most = a.most * b.most;
  return {most, a.least >= 0 && b.least >= 0 ? a.least * b.least : -most};
}

Range product(const Arguments& of, int a, int b) {
  Range range = product(of[a], of[b]);
  if (of.same(a, b)) range.least = std::max(range.least, 0.0);
  return range;
}

// What is divided by may not come near 0.
Range quotient(Range a, Range b) {
  if (!(b.least > 0)) return {};
  const double most = a.most / b.least;
  return {most, a.least >= 0 ? a.least / b.most : -most};
}

// Of a sum of many products, which is nearly always far smaller. Looking at it costs little beside making it, and what
// is made of it, the second moment of a gradient for one, need then not be looked at.
Range narrow(double most) {
  constexpr double kMostProducts = 1e8;
  return most <= kMostProducts ? within(most) : Range{};
}

Range lerped(const Arguments& of) {
  const double a = of.most(0), b = of.most(1);
  const Range weight = of[2];
  return within(weight.least >= 0 && weight.most <= 1 ? std::max(a, b) : a + weight.most * (a + b));
}

double with_bias(const Frame& frame, const Arguments& of) {  // addmm, baddbmm: self, mat1, mat2, beta, alpha
  const double n = size(of.tensor(1), -1);
  const double beta = std::abs(of.number_or(3, 1)), alpha = std::abs(of.number_or(4, 1));
  const bool fits = n * of.most(1) * of.most(2) <= kMostIntermediate && frame.traits->arguments[3] == "beta";
  if (!fits) return kInf;
  const double bias = beta == 0 ? 0 : beta * of.most(0);
  return bias + alpha * n * of.most(1) * of.most(2);
}

constexpr double kUsualEps = 1e-12;

struct Normalised {
  double most;     ///< of (x - mean) / sqrt(var + eps): sqrt(n) if there were no rounding
  double inverse;  ///< of 1 / sqrt(var + eps)
};

double most_normalised(double most, double n, double inverse) {
  constexpr double kCancelled = 1e-5;  // of the values, where the variance is rounded away
  return 4 * std::sqrt(n) + kCancelled * most * inverse;
}

Normalised normalised(double most, double n, double eps) {
  const bool squares_fit = n >= 1 && n * most * most <= kMostIntermediate;
  if (!(eps >= kUsualEps) || !squares_fit) return {kInf, kInf};
  const double inverse = 1 / std::sqrt(eps);
  return {most_normalised(most, n, inverse), inverse};
}

double normalised_elements(const Frame& frame, int place) {
  double n = 1;
  for (const auto& scalar : frame.scalars) {
    if (scalar.argument == place) n *= scalar.value;
  }
  return n;
}

ResultBounds list(std::initializer_list<Range> ranges) {
  ResultBounds bounds;
  for (const Range& range : ranges) {
    const Range one = finished(range);
    const bool known = one.most <= kMostBound;  // false for NaN
    bounds.push_back(
        known ? Bounds{static_cast<float>(one.most), static_cast<float>(std::isnan(one.least) ? -one.most : one.least)}
              : Bounds{});
  }
  return bounds;
}

// (input, normalized_shape, weight, bias, eps) -> (output, mean, rstd)
ResultBounds layer_norm(const Frame& frame, const Arguments& of) {
  if (!(elements(of.tensor(0)) > 0)) return {};
  const double most = of.most(0);
  const auto [unit, inverse] = normalised(most, normalised_elements(frame, 1), of.number_or(4, 0));
  const double weight = of.tensor(2) ? of.most(2) : 1;
  return list({within(unit * weight + of.most_or_none(3)), within(most), {inverse, 0}});
}

// (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask) -> gradients
ResultBounds layer_norm_backward(const Frame& frame, const Arguments& of) {
  const double n = normalised_elements(frame, 2);
  const double rows = elements(of.tensor(1)) / n;
  const double weighted = of.most(0) * (of.tensor(5) ? of.most(5) : 1);
  const double unit = most_normalised(of.most(1), n, of.most(4));
  // It multiplies sums of gradient times input by the third power of 1 / deviation.
  if (!(n * weighted * of.most(1) * std::pow(of.most(4), 3) <= kMostIntermediate)) return {};
  return list({within(of.most(4) * weighted * (2 + unit * unit / std::sqrt(n))), within(rows * of.most(0) * unit),
               within(rows * of.most(0))});
}

// (input, weight, bias, …)
Range convolution(const Arguments& of) {
  const at::Tensor* weight = of.tensor(1);
  const double n = weight ? elements(weight) / size(weight, 0) : kInf;
  return within(n * of.most(0) * of.most(1) + of.most_or_none(2));
}

// (grad_output, input, weight, …) -> gradients
ResultBounds convolution_backward(const Arguments& of) {
  const at::Tensor *gradient = of.tensor(0), *weight = of.tensor(2);
  const double each = gradient ? elements(gradient) / size(gradient, 1) : kInf;  // of one channel
  const double taps = elements(weight);
  return list(
      {within(taps * of.most(0) * of.most(2)), within(each * of.most(0) * of.most(1)), within(each * of.most(0))});
}

// (query, key, value, …) -> (output, logsumexp)
ResultBounds attention(const Arguments& of) {
  const double products = size(of.tensor(0), -1) * of.most(0) * of.most(1);
  const double scores = products * std::abs(of.number_or(6, 1));
  if (!(products <= kMostIntermediate) || !(scores <= kMostBound) || of.tensor(5) != nullptr) return {};
  return list({within(of.most(2)), within(scores + 64)});
}

double row(const at::Tensor* tensor, std::optional<double> dim) {
  if (!tensor || !dim) return kInf;
  return tensor->dim() == 0 ? 1 : size(tensor, static_cast<std::int64_t>(*dim));
}

}  // namespace

ResultBounds bounds_of(const Frame& frame, c10::ArrayRef<Bounds> operands, c10::ArrayRef<const at::Tensor*> results) {
  if (results.empty()) return {};
  const Arguments of(frame, operands);
  switch (frame.traits->bound) {
    case BoundRule::none: return {};
    case BoundRule::moved: return list({of.all(false)});
    case BoundRule::padded: {
      const Range moved = of.all(false);
      return list({{moved.most, std::min(moved.least, 0.0)}});
    }
    case BoundRule::chosen: return list({of.all(true)});
    case BoundRule::first: return elements(of.tensor(0)) > 0 ? list({within(of.most(0))}) : ResultBounds();
    case BoundRule::magnitude: return list({{of.most(0), 0}});
    case BoundRule::relu: return list({{of.most(0), std::max(0.0, of[0].least)}});
    case BoundRule::tanh: return list({of.most(0) < kInf ? within(1) : Range{}});
    case BoundRule::share: return list({of.most(0) < kInf ? Range{1, 0} : Range{}});
    case BoundRule::noise: return list({{1, 0}});
    case BoundRule::gate_backward: {
      const double self = of.most(1);  // of which it takes the third power
      return self * self * self <= kMostIntermediate ? list({within(1.2 * of.most(0))}) : ResultBounds();
    }
    case BoundRule::tanh_backward: return list({within(of.most(0) * (1 + of.most(1) * of.most(1)))});
    case BoundRule::sigmoid_backward: return list({within(of.most(0) * of.most(1) * (1 + of.most(1)))});
    case BoundRule::sum: return list({sum(of[0], scaled(of[1], of.number_or(2, 1)))});
    case BoundRule::difference: return list({sum(of[0], scaled(of[1], -of.number_or(2, 1)))});
    case BoundRule::product: return list({product(of, 0, 1)});
    case BoundRule::quotient: {
      const bool rounds = frame.traits->arguments.size() > 2;
      const Range exact = quotient(of[0], of[1]);
      return list({rounds ? within(exact.most + 1) : exact});
    }
    case BoundRule::addcmul:
    case BoundRule::addcdiv: {
      const double by = of.number_or(3, 1);
      const bool fits = std::abs(by) * of.most(1) <= kMostIntermediate;
      const bool multiplies = frame.traits->bound == BoundRule::addcmul;
      const Range added = multiplies ? product(of, 1, 2) : quotient(of[1], of[2]);
      return fits ? list({sum(of[0], scaled(added, by))}) : ResultBounds();
    }
    case BoundRule::lerp: return list({lerped(of)});
    case BoundRule::square_root: {
      const Range self = of[0];
      return self.least >= 0 ? list({{std::sqrt(self.most), std::sqrt(self.least)}}) : ResultBounds();
    }
    case BoundRule::power: {
      const Range self = of[0];
      return of.number(1) == 2 ? list({{self.most * self.most, 0}}) : ResultBounds();
    }
    case BoundRule::matrix_product: return list({narrow(size(of.tensor(0), -1) * of.most(0) * of.most(1))});
    case BoundRule::product_with_bias: return list({narrow(with_bias(frame, of))});
    case BoundRule::total:
      return list({within(of.most(0) * elements(of.tensor(0)) / std::max(1.0, elements(results[0])))});
    case BoundRule::log_softmax: return list({within(2 * of.most(0) + std::log(elements(of.tensor(0))))});
    case BoundRule::softmax_backward: {
      const double share = of.most(1), n = row(of.tensor(1), of.number(2));
      return list({within(of.most(0) * share * (1 + n * share))});
    }
    case BoundRule::log_softmax_backward: {
      const double n = row(of.tensor(1), of.number(2));
      return list({within(of.most(0) * (1 + n) + 0 * of.most(1))});
    }
    case BoundRule::lookup_backward: return list({within(of.most(0) * elements(of.tensor(1)))});
    case BoundRule::layer_norm: return layer_norm(frame, of);
    case BoundRule::layer_norm_backward: return layer_norm_backward(frame, of);
    case BoundRule::convolution: return list({convolution(of)});
    case BoundRule::convolution_backward: return convolution_backward(of);
    case BoundRule::attention: return attention(of);
  }
  return {};
}

}  // namespace firstfault::trace
