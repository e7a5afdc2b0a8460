// The parameters were wrong before the first update: unwritten, far too large, or 0 throughout.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/in_time.h"
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"
#include "firstfault/reason/rules/weights.h"

namespace firstfault::reason {
namespace {

constexpr double kLossTimes = 3;  ///< first loss over ln(classes), that of a model that knows nothing
constexpr double kOutput = 2;     ///< rms of the scores: such a loss comes from large scores
constexpr double kFirstLoss = 0.92;
constexpr double kGain = 4;  ///< rms * sqrt(fan in); He 1.4, Xavier 1, PyTorch's default 0.58
constexpr double kGainOverflow = 10;
constexpr double kAnswer = 20;       ///< rms of an activation or output in the first step over that of the inputs
constexpr double kGrowing = 1.8;     ///< gain of every layer of a stack that multiplies the signal
constexpr double kManyLayers = 1e3;  ///< output over input, where no single weight is far too large
constexpr double kRecurrent = 1.2;   ///< gain of a weight that multiplies the signal in every time step
constexpr double kOutsized = 5;      ///< gain of one weight over the median of all
constexpr double kDiverged = 0.93;
constexpr double kOverflow = 0.96;
constexpr double kOnlyOutsized = 0.8;
constexpr double kZero = 0.85;

/// The scores of the first step.
double first_output(const Reading& reading) {
  double most = 0;
  for (const std::int32_t site : reading.sites(SiteRole::activation)) {
    if (!reading.site(site).op.empty()) continue;
    const Series rms = reading.series(site, &Health::rms);
    if (!rms.empty()) most = std::max(most, rms.front().value);
  }
  return most;
}

void name_weight(const Reading& reading, const Weight& weight, Hypothesis& result) {
  const Site& site = reading.site(weight.site);
  result.module = site.module;
  result.param = site.name;
  const std::string text = "'" + site.name + "' has an rms of " + brief(weight.rms) + ", " + brief(weight.gain) +
                           " times 1/sqrt(" + std::to_string(weight.fan_in) + "), its fan-in";
  result.evidence.insert(result.evidence.begin(), {0, name_of_site(site), text});
  result.description += " " + text + "; He initialisation has 1.4 times.";
  result.advice = "initialise this weight with a std of about fan_in ** -0.5.";
}

/// A sum over the batch instead of a mean is no bad start.
bool summed(double loss, double known_nothing, double elements) {
  return elements > 1 && std::fabs(loss / (elements * known_nothing) - 1) < 0.5;
}

std::optional<Hypothesis> first_loss(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::loss_op);
  const auto& rows = reading.rows();
  if (fact == nullptr || rows.empty() || rows.front()->step != 0) return std::nullopt;
  const double classes = Reading::number(*fact, "classes");
  const double loss = rows.front()->loss;
  if (!(classes >= 2) || !std::isfinite(loss) || loss < kLossTimes * std::log(classes)) return std::nullopt;
  if (summed(loss, std::log(classes), Reading::number(*fact, "elements"))) return std::nullopt;
  const double output = first_output(reading);
  if (output < kOutput) return std::nullopt;
  const auto weight = largest_gain(reading);
  if (!weight || weight->gain < kGain) return std::nullopt;
  Hypothesis result;
  result.cause = "bad_init";
  result.confidence = kFirstLoss;
  result.phase = "forward";
  const std::string text = "the first loss is " + brief(loss) + ", " + brief(loss / std::log(classes)) +
                           " times the ln(" + brief(classes) + ") of a model that knows nothing, from scores of rms " +
                           brief(output);
  result.description = "Training starts from a bad place: " + text + ".";
  result.evidence.push_back({0, "loss", text});
  name_weight(reading, *weight, result);
  return result;
}

/// The scale of the first step's weights explains an overflow in it, or a divergence that began with it.
std::optional<Hypothesis> too_large(const Reading& reading) {
  const Harm& harm = reading.harm();
  const Origin* origin = harm.origin;
  const bool at_once = harm.kind == Harm::Kind::fault && harm.step == 0 && origin != nullptr &&
                       one_of(origin->mechanism, {"dtype_overflow", "reduction_overflow", "exp_overflow"});
  constexpr std::int64_t kEarly = 5;
  if (!at_once && !(harm.grew && harm.onset <= kEarly)) return std::nullopt;
  const auto weight = largest_gain(reading);
  if (!weight || weight->gain < (at_once ? kGainOverflow : kGain)) return std::nullopt;
  Hypothesis result = at_once ? reading.about_culprit(*origin, kOverflow) : reading.about_growth("bad_init", kDiverged);
  result.cause = "bad_init";
  result.standing = Standing::inferred;
  if (!at_once) result.description = "The run diverged from its first steps, and it began with weights far too large.";
  name_weight(reading, *weight, result);
  return result;
}

/// One weight far larger than all others, and nothing is learnt.
std::optional<Hypothesis> outsized(const Reading& reading) {
  const Learning learning = reading.learning();
  if (reading.harm().kind != Harm::Kind::none || !(learning == Learning::flat || learning == Learning::worse))
    return std::nullopt;
  const auto weight = largest_gain(reading);
  if (!weight || weight->gain < kGain || weight->gain < kOutsized * usual_gain(reading)) return std::nullopt;
  Hypothesis result;
  result.cause = "bad_init";
  result.confidence = kOnlyOutsized;
  result.phase = "forward";
  result.description = "The loss does not improve, and one weight began far larger than the others.";
  name_weight(reading, *weight, result);
  return result;
}

struct Answer {
  std::int32_t site = -1;
  double rms = 0;
  double over = 1;  ///< over the largest input, or 1
};

/// The model's output in the first step, against its floating-point inputs.
Answer first_answer(const Reading& reading) {
  double input = 1;
  for (const std::int32_t site : reading.sites(SiteRole::input)) {
    const Series rms = reading.series(site, &Health::rms);
    if (floating(reading.site(site)) && !rms.empty()) input = std::max(input, rms.front().value);
  }
  Answer answer;
  for (const std::int32_t site : reading.sites(SiteRole::activation)) {
    const Series rms = reading.series(site, &Health::rms);
    if (rms.empty() || rms.front().step != 0 || rms.front().value <= answer.rms) continue;
    answer = {site, rms.front().value, rms.front().value / input};
  }
  return answer;
}

/// The weight by which a recurrent layer multiplies its own state, by the names of torch.nn.
std::optional<Weight> recurrent(const Reading& reading) {
  for (const Weight& weight : initial_weights(reading))
    if (weight.gain >= kRecurrent && reading.site(weight.site).name.find("weight_hh") != std::string::npos)
      return weight;
  return std::nullopt;
}

/// Weights of ordinary size give outputs of about the size of the inputs.
std::optional<Hypothesis> huge_answers(const Reading& reading) {
  const Answer answer = first_answer(reading);
  if (answer.over < kAnswer) return std::nullopt;
  auto weight = largest_gain(reading);
  if (weight && weight->gain < kGrowing) weight = answer.over >= kManyLayers ? recurrent(reading) : std::nullopt;
  if (!weight) return std::nullopt;
  if (weight->gain < kGain && answer.over < kManyLayers) return std::nullopt;
  if (reading.harm().kind == Harm::Kind::fault && !reading.harm().grew) return std::nullopt;
  Hypothesis result;
  result.cause = "bad_init";
  result.confidence = kFirstLoss;
  result.phase = "forward";
  const std::string text = name_of_site(reading.site(answer.site)) + " has an rms of " + brief(answer.rms) +
                           " in the first step, " + brief(answer.over) + " times what goes in";
  result.description = "The signal grows on its way through the network before anything was learnt: " + text + ".";
  result.evidence.push_back({0, name_of_site(reading.site(answer.site)), text});
  name_weight(reading, *weight, result);
  add_growth_in_time(reading.run(), result.evidence);
  return result;
}

/// Two weights in a row that are 0: neither passes a gradient to the other.
std::optional<Hypothesis> all_zero(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none || reading.learning() == Learning::improves) return std::nullopt;
  const auto weights = initial_weights(reading);
  for (std::size_t i = 1; i < weights.size(); ++i) {
    if (!stays_zero(reading, weights[i - 1]) || !stays_zero(reading, weights[i])) continue;
    Hypothesis result;
    result.cause = "bad_init";
    result.confidence = kZero;
    result.phase = "forward";
    result.param = reading.site(weights[i].site).name;
    result.module = reading.site(weights[i].site).module;
    result.description = "'" + reading.site(weights[i - 1].site).name + "' and '" + result.param +
                         "' are 0 throughout and stay so: the gradient of each is a product with the other.";
    result.evidence.push_back(
        {0, name_of_site(reading.site(weights[i].site)), "all elements are 0 from the first step"});
    result.advice = "initialise weights with random numbers; only the last layer of a branch may start at 0.";
    return result;
  }
  return std::nullopt;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (auto known = observed(reading, "bad_init")) return known;
  if (auto known = too_large(reading)) return known;
  if (auto known = first_loss(reading)) return known;
  if (auto known = huge_answers(reading)) return known;
  if (auto known = outsized(reading)) return known;
  return all_zero(reading);
}

std::string condition() {
  return "a parameter held NaN or Inf, or memory that nothing had written, before the first update; or a weight of "
         "rms " +
         brief(kGain) + " / sqrt(fan-in) or more, and the run diverged from the start or its first loss was above " +
         brief(kLossTimes) + " ln(classes) with scores of rms above " + brief(kOutput) + "; or of " +
         brief(kGainOverflow) + " / sqrt(fan-in) and the first step overflowed; or an activation of the first step " +
         brief(kAnswer) + " times the inputs (" + brief(kManyLayers) +
         " times where a recurrent layer's own weight is all that is large, " + brief(kRecurrent) +
         " / sqrt(fan-in)); or a weight " + brief(kOutsized) +
         " times the median of all and a loss that does not improve; or two weights in a row stay 0";
}

}  // namespace

namespace list {
extern const Rule bad_init;
const Rule bad_init{.name = "bad_init",
                    .symptom =
                        "a first loss many times ln(classes), an overflow or NaN in the first step, or no learning "
                        "at all",
                    .condition = condition,
                    .evidence =
                        "The first loss, the scores, and each weight's rms against its fan-in, before training "
                        "could have changed them.",
                    .advice = "Initialise weights with a std of about fan_in ** -0.5.",
                    .source = "He et al. 2015: std sqrt(2 / fan_in); Glorot and Bengio 2010",
                    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
