// How large what an optimizer writes can be at most: from what it held before, the gradients and its arithmetic.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace firstfault::guard {

/// Whose arithmetic is known. Adam stands for AdamW as well.
enum class UpdateRule : std::uint8_t { unknown, sgd, adam, rmsprop, adagrad };

/// By torch's name of the class: "SGD", "Adam", "AdamW", "RMSprop", "Adagrad".
UpdateRule update_rule(std::string_view optimizer) noexcept;

/// The numbers of one parameter group, by torch's names; those that its rule does not have stay as they are.
struct UpdateNumbers {
  UpdateRule rule = UpdateRule::unknown;
  double lr = std::numeric_limits<double>::quiet_NaN();
  double weight_decay = 0;
  double eps = 0;  ///< as it is held in the dtype that it is added to
  double beta1 = 0, beta2 = 0;
  double momentum = 0, dampening = 0;
  double alpha = 0;        ///< of RMSprop
  bool decoupled = false;  ///< weight decay is, as AdamW's
};

/// What a tensor in an optimizer's state is, by torch's name: "exp_avg" is of moments, "exp_avg_sq" of squares.
enum class Held : std::uint8_t { parameter, moment, square, other };
Held held_as(std::string_view state_name) noexcept;

/// Largest magnitudes of float32 numbers. Infinity: not known.
struct HeldSizes {
  double parameter = 0, moment = 0, square = 0;

  static HeldSizes unknown() noexcept;
  void add(Held what, double largest, bool may_be_negative) noexcept;
};

/// After one step of a group whose gradients have no larger magnitude than `gradient`; unknown() where some result
/// or intermediate value might come near to what a float32 holds. For each rule from its formula in torch.optim's
/// documentation, with the largest numerator over the smallest denominator: |m| / (sqrt(v) + eps) <= |m| / eps.
HeldSizes after_step(const UpdateNumbers& group, const HeldSizes& before, double gradient) noexcept;

/// Of one optimizer: whether its results have to be read, or follow from what was read before.
class ResultBound {
 public:
  /// All that it holds, as it has just been read.
  void read(const HeldSizes& sizes) noexcept { now_ = sizes; }
  /// It may hold anything.
  void forget() noexcept { now_ = HeldSizes::unknown(); }
  /// Whether all that a step writes is sure to be finite, whether or not it is made then, of all parameters or some.
  bool step(const std::vector<UpdateNumbers>& groups, double gradient) noexcept;

 private:
  HeldSizes now_ = HeldSizes::unknown();
};

/// Results are read in these steps even so: somebody else may write into what the optimizer holds; and before a
/// snapshot, which must not hold what is not finite. `made`: steps of this optimizer before; `step`: of the guard.
bool reads_anyway(std::int64_t made, std::int64_t step, std::int64_t snapshot_every) noexcept;

}  // namespace firstfault::guard
