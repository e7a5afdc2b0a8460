// Which experiments speak for which cause: its own, and those of its rivals.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace firstfault::reason {

struct CauseTests {
  std::string_view cause;
  /// Its own changes: what cures here speaks for the cause.
  std::vector<std::string_view> own;
  /// Its name is read off the operands; the own change proves the place only: the same repair cures op_domain,
  /// overflow, masked_softmax and loss_definition.
  bool read_off_operands = false;
  /// Needs a whole window of steps: a single replay proves nothing about it.
  bool window = false;
  std::string_view missing;      ///< what would test it, as a person reads it
  std::string_view goes_before;  ///< a more general cause, whose change cures whatever its own does; "" for none
  /// Its own changes are some of many that could help: that none of them cures refutes nothing.
  bool some_of_many = false;
};

/// nullptr for a cause that no experiment is known for.
const CauseTests* tests_of(std::string_view cause);

/// A cause that an experiment alone speaks for, whatever hypothesis is being tested: where its change cures too, the
/// two cannot be told apart.
struct Rival {
  std::string_view experiment;
  std::string_view cause;
  bool only_if_suspected = false;  ///< counts only where the cause is among the hypotheses
};
const std::vector<Rival>& rivals();
/// Of windows: changes made for one cause, which go before a lower learning rate.
const std::vector<Rival>& rivals_of_a_lower_rate();

}  // namespace firstfault::reason
