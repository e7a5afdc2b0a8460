#include "firstfault/live/measure/as_held.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace firstfault::measure {

double eps_as_held(double eps, c10::ScalarType of_parameter, bool fused) {
  const auto type = c10::isComplexType(of_parameter) ? c10::toRealValueType(of_parameter) : of_parameter;
  if (type == c10::kDouble) return eps;
  const auto single = static_cast<float>(eps);
  if (fused) return single;
  if (type == c10::kHalf) return static_cast<float>(c10::Half(single));
  if (type == c10::kBFloat16) return static_cast<float>(c10::BFloat16(single));
  return single;
}

}  // namespace firstfault::measure
