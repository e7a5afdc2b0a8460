// The output came to ignore the input.
#include "firstfault/reason/rules/collapse.h"

#include <algorithm>

namespace firstfault::reason {
namespace {

constexpr double kVaried = 0.05;    ///< std between samples over rms, in the first step
constexpr double kConstant = 2e-3;  ///< the same, after the collapse
constexpr std::size_t kSteps = 20;  ///< up to the end

std::optional<std::int64_t> constant_since(const Series& varies) {
  if (varies.empty() || varies.front().value < kVaried) return std::nullopt;
  std::size_t steps = 0;
  std::int64_t since = 0;
  for (auto point = varies.rbegin(); point != varies.rend() && point->value <= kConstant; ++point, ++steps)
    since = point->step;
  return steps >= kSteps ? std::optional(since) : std::nullopt;
}

}  // namespace

std::optional<Collapse> output_collapse(const Reading& reading) {
  if (reading.learning() == Learning::improves) return std::nullopt;
  std::optional<Collapse> collapse;
  const Site* first = nullptr;
  for (const std::int32_t index : reading.sites(SiteRole::activation)) {
    const Site& site = reading.site(index);
    const Series varies = reading.series(index, &Health::varies);
    const auto since = constant_since(varies);
    if (!since) continue;
    if (site.op.empty()) {
      collapse = Collapse{*since, "", {}};
      collapse->evidence.push_back({*since, site.name,
                                    "the outputs for different samples differ by " + brief(varies.back().value) +
                                        " of their size, in the first step by " + brief(varies.front().value)});
    } else if (first == nullptr || site.order < first->order) {
      first = &site;
    }
  }
  if (collapse && first != nullptr) collapse->module = first->module;
  return collapse;
}

std::string collapse_condition() {
  return "the output, which differed between samples by " + brief(kVaried) +
         " of its size or more, comes to differ by " + brief(kConstant) + " or less for the last " +
         std::to_string(kSteps) + " steps or longer, and the loss does not improve";
}

}  // namespace firstfault::reason
