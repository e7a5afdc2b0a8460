// NaN or Inf in the batch, a target, a buffer, or a tensor from outside.
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kSeenInBatch = 0.9;

/// No op is known to have made it: the batch of the faulty step holds the value.
std::optional<Hypothesis> in_batch(const Reading& reading) {
  const Harm& harm = reading.harm();
  if (harm.kind != Harm::Kind::fault || (harm.origin != nullptr && !harm.origin->mechanism.empty()))
    return std::nullopt;
  for (const SiteRole role : {SiteRole::input, SiteRole::target}) {
    for (const std::int32_t site : reading.sites(role)) {
      const Health* health = reading.health(harm.step, site);
      if (health == nullptr || !health->bad()) continue;
      Hypothesis result;
      result.cause = "data_nonfinite";
      result.confidence = kSeenInBatch;
      result.step = harm.step;
      result.phase = "data";
      const std::string name = name_of_site(reading.site(site));
      const std::string count = std::to_string(health->nonfinite);
      result.description = name + " of step " + std::to_string(harm.step) + " held " + count +
                           " non-finite values before the model read it.";
      result.evidence.push_back({harm.step, name, name + " holds " + count + " non-finite values"});
      return result;
    }
  }
  return std::nullopt;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin != nullptr && python_number(*origin)) return std::nullopt;
  auto known = observed(reading, "data_nonfinite");
  return known ? known : in_batch(reading);
}

std::string condition() {
  return "a tensor of the batch, a buffer or a tensor from outside held NaN or Inf before any op made it (mechanism "
         "bad_input), and it reached the loss, a gradient or a parameter";
}

}  // namespace

namespace list {
extern const Rule data_nonfinite;
const Rule data_nonfinite{
    .name = "data_nonfinite",
    .symptom = "the loss is NaN for one batch, then for all",
    .condition = condition,
    .evidence = "The tensor that held the value when an op first read it; its name and the sample.",
    .advice = "Drop, fill or mask non-finite values in the loader.",
    .source = "no threshold",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
