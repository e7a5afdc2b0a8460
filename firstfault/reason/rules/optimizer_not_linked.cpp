// Parameters that get gradients and never change: the optimizer does not hold them.
#include <cmath>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr std::int64_t kSteps = 3;
constexpr double kForeign = 0.95;  ///< it holds other tensors in their place: a model built or moved again
constexpr double kNothing = 0.93;  ///< it holds none of the model's
constexpr double kMost = 0.9;      ///< most of the parameters, and the loss hardly improves
constexpr double kSome = 0.7;      ///< left out by mistake, or frozen by leaving them out

bool nothing_moves(const Reading& reading) {
  const Series update = reading.series(&StepRow::update_ratio);
  return reading.sites(SiteRole::parameter).empty() || (!update.empty() && quantile(values_of(update), 1) == 0);
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const Fact* left_out = reading.fact(FactKind::not_held);
  if (left_out == nullptr || left_out->count < kSteps) return std::nullopt;
  const Fact* foreign = reading.fact(FactKind::foreign);
  const double left = Reading::number(*left_out, "count");
  const bool most = 2 * left > static_cast<double>(reading.sites(SiteRole::parameter).size()) + left;
  const bool stuck = reading.learning() != Learning::improves || reading.remaining() > 0.7;
  const double confidence = foreign != nullptr       ? kForeign
                            : nothing_moves(reading) ? kNothing
                            : most && stuck          ? kMost
                                                     : kSome;
  Hypothesis result;
  result.cause = "optimizer_not_linked";
  result.confidence = confidence;
  result.step = left_out->first_step;
  result.onset_step = left_out->first_step;
  result.phase = "optimizer";
  result.module = left_out->module;
  result.param = left_out->detail.substr(0, left_out->detail.find(','));
  const double count = Reading::number(*left_out, "count");
  const std::string many = std::isfinite(count) ? brief(count) + " parameters" : std::string("Parameters");
  result.description = many + " get gradients that no optimizer uses: " + left_out->detail + ".";
  result.evidence.push_back({left_out->first_step, left_out->module, "not held by any optimizer: " + left_out->detail});
  if (foreign != nullptr) {
    const std::string text =
        "the optimizer holds " + brief(Reading::number(*foreign, "count")) + " tensors that belong to no watched model";
    result.description += " Meanwhile " + text + ": it was made for another copy of the model.";
    result.evidence.push_back({foreign->first_step, "", text});
  }
  result.advice =
      "make the optimizer after the model is complete (moved, wrapped, layers replaced); freeze what shall not "
      "train with requires_grad_(False).";
  return result;
}

std::string condition() {
  return "in " + std::to_string(kSteps) +
         " steps or more, parameters had gradients and no optimizer held them; surer where the optimizer holds tensors "
         "that the model does not, or where nothing moves at all";
}

}  // namespace

namespace list {
extern const Rule optimizer_not_linked;
const Rule optimizer_not_linked{.name = "optimizer_not_linked",
                                .symptom = "the loss does not move although gradients are there",
                                .condition = condition,
                                .evidence = "Which parameters have gradients, and which tensors the optimizers hold.",
                                .advice =
                                    "Make the optimizer after the model is complete; freeze with "
                                    "requires_grad_(False).",
                                .source = "no threshold",
                                .stands_alone = true,
                                .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
