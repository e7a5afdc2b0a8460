// The gradient shrinks from layer to layer, or in a recurrent layer from time step to time step, on its way back, and
// what came first receives next to nothing.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "firstfault/reason/rules/harm.h"
#include "firstfault/reason/rules/in_time.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kTotal = 1e-3;  ///< first layer's gradient norm over the last one's
constexpr double kFirst = 1e-4;  ///< first layer's gradient norm
constexpr double kLambda = 0.6;  ///< factor per layer
constexpr std::size_t kLayers = 4;
constexpr double kSmooth = 0.7;
constexpr std::int64_t kSteps = 5;  ///< in the first of which it must hold already
constexpr double kLearnt = 0.5;     ///< last loss over first: it learns all the same
constexpr double kLikely = 0.93;
constexpr double kAtFirst = 0.85;  ///< it came out of it, late
constexpr double kInTime = 0.85;
// By time: a healthy layer falls by as much, and learns what is near.
constexpr std::size_t kSeenSteps = 30;
constexpr double kMoved = 0.5;  ///< all updates together, as if in one direction, over the parameters
constexpr double kNoise = 2;    ///< standard errors between the losses of the first half and the second

/// The nonlinearity that most layers share.
const Site* usual_activation(const Reading& reading) {
  std::map<std::string, std::pair<int, const Site*>> count;
  for (const std::int32_t index : reading.sites(SiteRole::activation)) {
    const Site& site = reading.site(index);
    if (site.op.empty()) continue;
    auto& entry = count[site.op];
    ++entry.first;
    entry.second = &site;
  }
  const Site* best = nullptr;
  int most = 0;
  for (const auto& [op, entry] : count)
    if (entry.first > most) {
      most = entry.first;
      best = entry.second;
    }
  return best;
}

/// Without the first layers whose gradient has underflowed to 0.
std::vector<Depth> with_gradient(std::vector<Depth> depths) {
  while (!depths.empty() && depths.front().norm == 0) depths.erase(depths.begin());
  return depths;
}

/// Steps that moved the parameters by much of themselves: a gradient that vanishes only after them is their effect.
bool thrown_before(const Reading& reading) {
  const auto moved = values_of(reading.series(&StepRow::update_ratio));
  return std::any_of(moved.begin(), moved.end(), [](double ratio) { return ratio >= kUnstableRatio; });
}

bool vanishes(const std::vector<Depth>& depths, const Growth& growth) {
  return growth.layers >= kLayers && growth.lambda <= kLambda && growth.total < kTotal &&
         depths.front().norm < kFirst && depths.front().norm > 0 && growth.smooth >= kSmooth;
}

std::optional<Hypothesis> by_depth(const Reading& reading) {
  if (reading.harm().kind == Harm::Kind::fault || reading.rows().empty()) return std::nullopt;
  if (reading.learning() == Learning::improves && reading.remaining() < kLearnt) return std::nullopt;
  const auto& rows = reading.rows();
  const std::int64_t first = rows.front()->step;
  const std::int64_t last = rows.back()->step;
  const auto early = with_gradient(reading.depths(first, first + kSteps));
  const auto newest =
      with_gradient(reading.depths(last - std::max<std::int64_t>(kSteps, (last - first) / 4), last + 1));
  const bool at_once = vanishes(early, reading.growth_by_depth(early));
  const bool to_the_end = vanishes(newest, reading.growth_by_depth(newest));
  if (!at_once && !(to_the_end && reading.learning() != Learning::improves)) return std::nullopt;
  if (!at_once && thrown_before(reading)) return std::nullopt;
  const auto& late = to_the_end ? newest : early;
  const Growth growth = reading.growth_by_depth(late);
  const Site& site = reading.site(late.front().site);
  Hypothesis result;
  result.cause = "vanishing_gradient";
  result.confidence = to_the_end ? kLikely : kAtFirst;
  result.step = at_once ? first : rows[rows.size() / 2]->step;
  result.onset_step = result.step;
  result.phase = "backward";
  result.param = site.name;
  const Site* activation = usual_activation(reading);
  if (activation != nullptr) {
    result.op = backward_name(activation->op);
    result.forward_op = activation->op;
  }
  result.description = "The gradient shrinks by a factor of " + brief(growth.lambda) +
                       " per layer on its way back: over " + std::to_string(growth.layers - 1) + " layers that is " +
                       brief(growth.total) + ", and '" + site.name + "' receives a gradient of norm " +
                       brief(late.front().norm) + ", too small to learn from.";
  for (const Depth& depth : late)
    result.evidence.push_back({result.step, name_of_site(reading.site(depth.site)),
                               name_of_site(reading.site(depth.site)) + " has norm " + brief(depth.norm)});
  result.advice = "use ReLU or GELU with He initialisation, residual connections or normalisation.";
  return result;
}

/// Goes on from where another run had come to: that its loss stands still means nothing.
bool resumed(const Reading& reading) {
  const auto groups = reading.sites(SiteRole::optimizer);
  const std::int64_t first = reading.rows().front()->step;
  return std::any_of(groups.begin(), groups.end(), [&](std::int32_t group) {
    const Health* health = reading.health(first, group);
    return health != nullptr && static_cast<double>(health->state_steps) > static_cast<double>(first + 1);
  });
}

/// Parameters that have hardly moved had no chance to learn, whatever the gradient is.
double moved(const Reading& reading) {
  const Series update = reading.series(&StepRow::update_ratio);
  if (update.empty()) return 0;
  return median(values_of(update)) * static_cast<double>(update.back().step - update.front().step + 1);
}

struct Mean {
  double value = 0, variance = 0;  ///< of the mean
};

Mean mean_of(std::span<const Point> points) {
  Mean mean;
  const auto n = static_cast<double>(points.size());
  for (const Point& point : points) mean.value += point.value / n;
  for (const Point& point : points) mean.variance += (point.value - mean.value) * (point.value - mean.value) / n / n;
  return mean;
}

/// Slowly, it may be.
bool gets_better(const Series& loss) {
  const auto half = loss.size() / 2;
  const Mean early = mean_of(std::span(loss).first(half)), late = mean_of(std::span(loss).subspan(half));
  return early.value - late.value > kNoise * std::sqrt(early.variance + late.variance);
}

/// Where nothing asks for the past a healthy layer falls by as much: it learns.
std::optional<Hypothesis> by_time(const Reading& reading) {
  const Learning learning = reading.learning();
  if (reading.harm().kind != Harm::Kind::none || !(learning == Learning::flat || learning == Learning::worse))
    return std::nullopt;
  const Series loss = reading.series(&StepRow::loss);
  if (loss.size() < kSeenSteps || gets_better(loss) || moved(reading) < kMoved || resumed(reading)) return std::nullopt;
  const auto found = falls_in_time(reading.run(), kTotal);
  if (!found) return std::nullopt;
  const Fact& fact = *found->fact;
  Hypothesis result;
  result.cause = "vanishing_gradient";
  result.confidence = kInTime;
  result.step = fact.first_step;
  result.onset_step = result.step;
  result.phase = "backward";
  result.module = fact.module;
  result.param = fact.detail;
  result.op = backward_name(fact.op);
  result.forward_op = fact.op;
  const std::string steps = brief(found->steps);
  result.description = "Nothing is learnt from what lies far back: " + found->in_words() + ", so what happened " +
                       steps + " steps ago counts " + brief(found->total()) + " as much as what happens now.";
  result.evidence.push_back({fact.last_step, fact.module,
                             "in " + fact.op + " the gradient has an rms of " + brief(Reading::number(fact, "last")) +
                                 " at the last time step and of " + brief(Reading::number(fact, "first")) +
                                 " at the first of " + steps});
  result.advice =
      "use a gated unit (GRU, LSTM), orthogonal initial recurrent weights, normalisation, or shorter sequences.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  auto result = by_depth(reading);
  return result ? result : by_time(reading);
}

std::string condition() {
  return "over " + std::to_string(kLayers) + " layers or more the gradient norm falls by a factor of " +
         brief(kLambda) + " per layer or faster, to less than " + brief(kTotal) +
         " of the last layer's and less than " + brief(kFirst) +
         ", and the loss does not improve; from the first steps on, or after steps that all moved the parameters by "
         "less than " +
         brief(kUnstableRatio) +
         " of themselves; or in a recurrent layer, in the first step and in the newest, it falls by a factor of " +
         brief(kFallsInTime) + " per time step or faster, to less than " + brief(kTotal) +
         " over all time steps, and the loss of " + std::to_string(kSeenSteps) +
         " steps or more does not improve (by " + brief(kNoise) +
         " standard errors from the first half to the second) though the updates come to " + brief(kMoved) +
         " of the parameters or more";
}

}  // namespace

namespace list {
extern const Rule vanishing_gradient;
const Rule vanishing_gradient{
    .name = "vanishing_gradient",
    .symptom =
        "a deep network that does not learn, not even its training set; a recurrent one "
        "that learns nothing about what lies far back",
    .condition = condition,
    .evidence =
        "Gradient norms of the weights, from the last layer to the first; the gradient of "
        "what goes into a recurrent layer's nonlinearity, from the last time step to the "
        "first.",
    .advice =
        "ReLU or GELU with He initialisation, residual connections, normalisation; in time "
        "gated units, orthogonal recurrent weights, shorter sequences.",
    .source =
        "AutoTrainer: first/last below 1e-3 and first below 1e-4; the derivative of a "
        "sigmoid is at most 1/4 (Glorot and Bengio 2010); in time Bengio et al. 1994, with the "
        "same total",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
