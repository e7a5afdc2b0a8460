// What the observer has to know about an op, found once per op and cached by the address of its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace at {
struct RecordFunction;
}

namespace firstfault::intercept {

enum class OpKind : std::uint8_t {
  compute,  ///< makes values: its outputs are scanned
  view,     ///< only aliases or changes metadata
  alloc,    ///< memory nobody has written yet
  other,    ///< not a dispatched op: autograd engine, custom autograd.Function, ranges of the profiler
};

/// What an op does with the batch axis of its operands.
enum class BatchRule : std::uint8_t {
  unknown,             ///< nothing is claimed about its outputs
  broadcast,           ///< output dims are operand dims, aligned from the right
  product,             ///< matrix product of arguments 0 and 1
  product_after_bias,  ///< of arguments 1 and 2
  lookup,              ///< output dims begin with those of argument 1
  all_but_last,        ///< dims of argument 0 but the last
  dim_zero,            ///< dim 0 stays, the others are mixed
  reduction,           ///< drops the dims in `dim`
  recurrent,           ///< may hold time in dim 0: the batch is given up
};

/// Families of functions that flatten out somewhere, by where.
enum class Nonlinearity : std::uint8_t {
  none,
  tanh,     ///< flat at -1 and 1
  sigmoid,  ///< flat at 0 and 1
  relu,     ///< 0 for everything negative
  bounded,  ///< hardtanh, relu6, hardsigmoid: constant outside an interval
  smooth,   ///< gelu, silu, elu, softplus …: flat at one end, in the limit
  softmax,  ///< flat where one element of a row takes it all
};

enum class LossFamily : std::uint8_t {
  none,
  elementwise,        ///< compares prediction and target element by element: mse_loss, l1_loss …
  log_probabilities,  ///< reads log-probabilities: nll_loss
};

/// How large the results of an op can be, by how large its operands are: trace/bounds.h does the arithmetic.
enum class BoundRule : std::uint8_t {
  none,    ///< nothing is known
  moved,   ///< elements of the operands
  padded,  ///< these and 0
  chosen,  ///< these and the numbers among the arguments
  first,   ///< no larger than the first operand
  magnitude,
  relu,
  tanh,
  share,  ///< from 0 to 1
  noise,  ///< the same, whatever the operands are
  gate_backward,
  tanh_backward,
  sigmoid_backward,
  sum,
  difference,
  product,
  quotient,
  addcmul,
  addcdiv,
  lerp,
  square_root,
  power,
  matrix_product,
  product_with_bias,
  total,
  log_softmax,
  softmax_backward,
  log_softmax_backward,
  lookup_backward,
  layer_norm,
  layer_norm_backward,
  convolution,
  convolution_backward,
  attention,
};

struct OpTraits {
  const char* key = nullptr;           ///< address of the name in the op's schema
  std::string name;                    ///< "aten::add_"
  std::vector<std::string> arguments;  ///< schema names, in order
  std::size_t returns = 0;             ///< how many values it returns
  OpKind kind = OpKind::other;

  bool composite = false;     ///< CompositeImplicit: nothing but dispatched ops inside
  bool foreign = false;       ///< not PyTorch's own: it may consist of dispatched ops, of its own kernels, or of both
  bool delegates = false;     ///< its outputs may be taken over as its child ops left them
  bool mutates = false;       ///< has written arguments, so outputs are those arguments
  bool pure_write = false;    ///< what a written argument held before is no operand (fill_, copy_ …)
  bool constant = false;      ///< gives only the numbers among its arguments: finite when these are
  bool keeps_finite = false;  ///< of finite operands it makes finite values only
  bool scales = false;        ///< mul: so it does, where a number of at most 1 is one of the operands
  bool lift = false;          ///< aten::lift_fresh: memory was written outside the dispatcher
  bool fills = false;         ///< a non-finite scalar argument is meant
  bool passes_inf = false;    ///< an intended Inf may go through and stay intended
  bool flips_inf = false;     ///< and may come out with the other sign
  bool mask_first = false;    ///< the same, for argument 0 only (addmm's bias)
  bool takes_mask = false;    ///< an outside tensor of finite and -Inf values read here is a mask
  bool selects = false;       ///< chooses elements: what it leaves out is deselected, not swallowed
  bool pointwise = false;     ///< each output element comes from one element of each operand
  BatchRule batch = BatchRule::unknown;
  bool keep_operand = false;  ///< in-place form of an op that a mechanism knows: keep what it overwrites
  bool reads_out = false;     ///< gives a number to the program: tensor.item()
  Nonlinearity nonlinearity = Nonlinearity::none;
  LossFamily loss = LossFamily::none;
  BoundRule bound = BoundRule::none;
  bool flat = false;    ///< its derivative is 0 everywhere: round, sign, argmax
  bool routes = false;  ///< topk
  bool subtracts = false;
  bool rescales = false;    ///< multiplies in place, as clipping does with gradients
  bool amp_check = false;   ///< GradScaler's check for non-finite gradients
  bool amp_update = false;  ///< GradScaler's update, the end of a step
  bool collective = false;  ///< writes into its arguments, and after it has returned

  std::uint64_t written = 0;    ///< bit i: argument i is written, by the schema
  std::uint64_t unmarked = 0;   ///< bit i: argument i is written though the schema does not say so
  std::uint64_t out = 0;        ///< bit i: argument i is an `out=`
  std::uint64_t numbers = 0;    ///< bit i: argument i is a number of any type, also a bool
  std::uint32_t auxiliary = 0;  ///< bit i: output i holds Inf in healthy steps

  bool writes(int argument) const noexcept { return ((written | unmarked) >> argument) & 1; }
  bool overwrites(int argument) const noexcept { return pure_write || ((out >> argument) & 1); }
};

/// Any thread, lock-free once seen. The reference is valid for the life of the process.
const OpTraits& traits_of(const at::RecordFunction& record);

/// Traits of nothing: kind other.
const OpTraits& no_traits() noexcept;
/// Stands for a custom autograd.Function in the record of forward ops.
const OpTraits& custom_function_traits() noexcept;

/// "aten::add_" -> "add"; "aten::__and__" stays "__and__".
std::string_view base_name(std::string_view name) noexcept;

}  // namespace firstfault::intercept
