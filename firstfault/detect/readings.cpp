// An absolute threshold and the site's own baseline: both must be passed.
#include "firstfault/detect/readings.h"

#include <algorithm>
#include <cmath>

#include "firstfault/detect/thresholds.h"

namespace firstfault::detect {
namespace {

constexpr std::size_t kFewestForData = 4;

Reading begin(Condition condition, double value, const Baseline& usual) {
  Reading reading;
  reading.condition = condition;
  reading.value = value;
  if (usual.size() > 0) reading.baseline = usual.floor();
  reading.leave_steps = kLeaveSteps;
  return reading;
}

}  // namespace

double confidence(double margin, bool has_baseline) {
  if (!(margin > 0)) return 0;
  const double passed = 0.99 - 0.4 / std::max(margin, 1.0);
  return has_baseline ? passed : passed - 0.1;
}

double confidence_of_fraction(double fraction, double threshold, bool has_baseline) {
  return confidence(std::exp2((fraction - threshold) * 8), has_baseline);
}

Reading non_finite(std::int64_t elements) {
  Reading reading;
  reading.condition = Condition::non_finite;
  reading.enter = reading.stay = elements > 0;
  reading.leave_steps = kLeaveSteps;
  reading.value = static_cast<double>(elements);
  reading.confidence = 1;
  return reading;
}

Reading exploding(double value, const Baseline& usual, double threshold, bool first_counts) {
  Reading reading = begin(Condition::exploding, value, usual);
  reading.enter_steps = 2;
  if (usual.size() == 0) {
    const double margin = value / (threshold * kExplodingFirst);
    reading.enter = reading.at_once = first_counts && margin > 1;
    reading.stay = reading.enter || value > threshold * kExplodingLeave;
    reading.confidence = confidence(margin, false);
    return reading;
  }
  const double factor = usual.ready() ? kExplodingFactor : kExplodingFactorEarly;
  const double times = value / reading.baseline;
  const double margin = std::min(value / threshold, times / factor);
  // z last: it is the dear one.
  reading.enter = margin > 1 && (!usual.ready() || times > kExplodingAnyway || usual.z(value) > kExplodingZ);
  reading.at_once = reading.enter && times > (usual.ready() ? kExplodingAtOnce : kExplodingAtOnceEarly);
  reading.stay = reading.enter || margin > kExplodingLeave;
  reading.confidence = confidence(margin, usual.ready());
  return reading;
}

Reading spiking_batch(double value, const Baseline& usual) {
  Reading reading = begin(Condition::spiking, value, usual);
  if (usual.size() < kFewestForData) return reading;
  reading.baseline = usual.median();
  const double factor = usual.ready() ? kDataFactor : kDataFactorEarly;
  const double margin = value / reading.baseline / factor;
  if (!(margin > kDataLeave)) return reading;
  const double z = usual.z(value);
  reading.enter = margin > 1 && z > kSpikeZ;
  reading.stay = reading.enter || z > kSpikeLeaveZ;
  reading.confidence = confidence(std::min(margin, z / kSpikeZ), usual.ready());
  return reading;
}

}  // namespace firstfault::detect
