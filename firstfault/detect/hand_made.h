// Series made by hand for the tests of this stage.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "firstfault/detect/detector.h"

namespace firstfault::detect::hand_made {

/// exp(sigma * N(0, 1)), the same for the same seed everywhere: no std::normal_distribution, whose numbers are the
/// library's.
class Noise {
 public:
  explicit Noise(std::uint32_t seed) : engine_(seed) {}
  double uniform() { return (static_cast<double>(engine_()) + 0.5) / 4294967296.0; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }
  double factor(double sigma) { return std::exp(sigma * normal()); }

 private:
  std::mt19937 engine_;
};

inline Site site(SiteRole role, std::string name, std::int32_t order = -1, std::vector<std::int64_t> shape = {}) {
  Site one;
  one.role = role;
  one.name = std::move(name);
  one.order = order;
  one.shape = std::move(shape);
  one.dtype = "float32";
  if (role == SiteRole::activation) one.op = "aten::tanh";
  return one;
}

inline Health health(double rms) {
  Health one;
  one.nonfinite = 0;
  one.rms = static_cast<float>(rms);
  one.absmax = static_cast<float>(3 * rms);
  return one;
}

/// One site; a step per call; what changed is kept.
class OneSite {
 public:
  explicit OneSite(Site one, DetectorOptions options = {}) : sites_{std::move(one)}, detector_(options) {}

  Condition step(const Health& health) {
    row_.sites = {health};
    return observe();
  }
  Condition step(double rms) { return step(health(rms)); }
  Condition skipped(const Health& health) {
    row_.skipped = true;
    const Condition now = step(health);
    row_.skipped = false;
    return now;
  }
  void steps(int count, double rms) {
    for (int i = 0; i < count; ++i) step(rms);
  }
  const std::vector<Transition>& transitions() const { return transitions_; }
  std::int64_t next() const { return row_.step; }

 private:
  Condition observe() {
    const auto changed = detector_.observe(sites_, row_);
    transitions_.insert(transitions_.end(), changed.begin(), changed.end());
    ++row_.step;
    return detector_.state(0);
  }

  std::vector<Site> sites_;
  Detector detector_;
  StepRow row_;
  std::vector<Transition> transitions_;
};

}  // namespace firstfault::detect::hand_made
