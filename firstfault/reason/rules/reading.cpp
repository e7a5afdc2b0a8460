// Reading a run.
#include "firstfault/reason/rules/reading.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "firstfault/base/names.h"
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/harm.h"
#include "firstfault/reason/rules/in_time.h"

namespace firstfault::reason {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

bool of_growth(const Origin& origin) {
  static constexpr std::string_view effects[] = {
      "exp_overflow",         "dtype_overflow",         "reduction_overflow",       "inf_minus_inf",
      "inf_over_inf",         "zero_times_inf",         "log_of_nonpositive",       "division_by_zero",
      "sqrt_or_rsqrt_domain", "derivative_at_boundary", "where_hides_forward_only", ""};
  return std::find(std::begin(effects), std::end(effects), origin.mechanism) != std::end(effects);
}

/// Which site was moved furthest, measured against the middle of the others, in the steps of the growth.
std::int32_t moved_most(const Reading& reading) {
  const Harm& harm = reading.harm();
  constexpr std::int64_t kSoon = 8;  // a gradient that explodes says more than a step that is large
  const Transition* first = reading.first_transition({Condition::exploding}, harm.step + kSoon);
  if (first == nullptr) first = reading.first_transition({Condition::unstable}, harm.step + 1);
  if (first != nullptr) return first->site;
  std::int32_t best = -1;
  double most = 0;
  for (const std::int32_t site : reading.sites(SiteRole::parameter)) {
    const Series series = between(reading.series(site, &Health::update), harm.onset, harm.step + 1);
    if (series.empty() || reading.site(site).shape.size() < 2 || series.front().value <= most) continue;
    most = series.front().value;
    best = site;
  }
  return best;
}

std::string changed(const char* what, const Series& series) {
  const double first = std::fabs(median(values_of({series.begin(), series.begin() + 1})));
  const double last = series.back().value;
  return std::string(what) + " went from " + brief(first) + " to " + brief(last);
}

}  // namespace

Reading::Reading(const Run& run, std::int32_t optimizer) : run_(run) {
  for (const StepRow& row : run.rows)
    if (!passed_over(row) && row.optimizer == optimizer) rows_.push_back(&row);
  harm_ = find_harm(run, rows_);
}

std::vector<const StepRow*> Reading::healthy_rows() const {
  if (harm_.kind == Harm::Kind::none) return rows_;
  std::vector<const StepRow*> healthy;
  for (const StepRow* row : rows_)
    if (row->step < harm_.step) healthy.push_back(row);
  return healthy;
}

const StepRow* Reading::row(std::int64_t step) const noexcept {
  const auto found = std::lower_bound(run_.rows.begin(), run_.rows.end(), step,
                                      [](const StepRow& row, std::int64_t wanted) { return row.step < wanted; });
  return found != run_.rows.end() && found->step == step ? &*found : nullptr;
}

Series Reading::series(Field field) const {
  Series result;
  for (const StepRow* row : rows_)
    if (std::isfinite(row->*field)) result.push_back({row->step, row->*field});
  return result;
}

Series Reading::series(std::int32_t site, Measure measure) const {
  Series result;
  const auto index = static_cast<std::size_t>(site);
  for (const StepRow* row : rows_) {
    if (index >= row->sites.size() || !row->sites[index].seen()) continue;
    const float value = row->sites[index].*measure;
    if (std::isfinite(value)) result.push_back({row->step, value});
  }
  return result;
}

Series Reading::healthy(Field field) const {
  return harm_.kind == Harm::Kind::none ? series(field) : between(series(field), 0, harm_.step);
}

Series Reading::healthy(std::int32_t site, Measure measure) const {
  return harm_.kind == Harm::Kind::none ? series(site, measure) : between(series(site, measure), 0, harm_.step);
}

namespace {

struct Ends {
  double from = 0, to = 0;
};

std::optional<Ends> ends(const Series& loss) {
  constexpr std::size_t kEnough = 10;
  if (loss.size() < kEnough) return std::nullopt;
  const auto few = static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(loss.size() / 20, 3, 20));
  const auto many = static_cast<std::ptrdiff_t>(std::max<std::size_t>(3, loss.size() / 10));
  const std::vector<double> values = values_of(loss);
  return Ends{median({values.begin(), values.begin() + few}), median({values.end() - many, values.end()})};
}

}  // namespace

std::optional<RateJump> Reading::rate_jump(std::int64_t until) const {
  constexpr double kTimes = 5;
  constexpr std::size_t kBefore = 3;
  const Series lr = series(&StepRow::lr);
  double most = 0;
  for (std::size_t i = 0; i < lr.size() && lr[i].step <= until; ++i) {
    if (i >= kBefore && most > 0 && lr[i].value >= kTimes * most) return RateJump{lr[i].step, most, lr[i].value};
    most = std::max(most, lr[i].value);
  }
  return std::nullopt;
}

Learning Reading::learning() const {
  const auto found = ends(healthy(&StepRow::loss));
  if (!found) return Learning::unknown;
  const double step = 0.1 * std::max(std::fabs(found->from), 1e-12);
  if (found->to < found->from - step) return Learning::improves;
  return found->to > found->from + 5 * step ? Learning::worse : Learning::flat;
}

double Reading::remaining() const {
  const auto found = ends(healthy(&StepRow::loss));
  return found && found->from > 0 && found->to >= 0 ? found->to / found->from : 1;
}

std::vector<std::int32_t> Reading::sites(SiteRole role) const {
  std::vector<std::int32_t> found;
  for (std::size_t i = 0; i < run_.sites.size(); ++i)
    if (run_.sites[i].role == role) found.push_back(static_cast<std::int32_t>(i));
  return found;
}

const Health* Reading::health(std::int64_t step, std::int32_t site) const noexcept {
  const StepRow* found = row(step);
  const auto index = static_cast<std::size_t>(site);
  if (found == nullptr || index >= found->sites.size() || !found->sites[index].seen()) return nullptr;
  return &found->sites[index];
}

std::string_view Reading::module_type(std::string_view path) const noexcept {
  for (const ModuleInfo& module : run_.setup.modules)
    if (module.path == path) return module.type;
  return "";
}

std::vector<Depth> Reading::depths(std::int64_t first, std::int64_t last) const {
  std::map<std::int32_t, Depth> by_order;
  for (const std::int32_t index : sites(SiteRole::gradient)) {
    const Site& one = site(index);
    if (one.order < 0 || one.shape.size() < 2 || module_type(one.module) == "Embedding") continue;
    const Series norms = between(series(index, &Health::rms), first, last);
    if (norms.empty()) continue;
    const double norm = median(values_of(norms)) * std::sqrt(static_cast<double>(one.elements()));
    Depth& place = by_order[one.order];
    if (place.site < 0 || norm > place.norm) place = {index, one.order, norm};
  }
  std::vector<Depth> result;
  for (const auto& [order, depth] : by_order) result.push_back(depth);
  return result;
}

Growth Reading::growth_by_depth(const std::vector<Depth>& depths) const {
  Growth growth;
  growth.layers = depths.size();
  if (depths.size() < 2 || depths.front().norm <= 0 || depths.back().norm <= 0) return growth;
  growth.total = depths.front().norm / depths.back().norm;
  growth.lambda = std::pow(growth.total, 1.0 / static_cast<double>(depths.size() - 1));
  std::size_t along = 0;
  for (std::size_t i = 1; i < depths.size(); ++i)
    along += (depths[i - 1].norm < depths[i].norm) == (growth.lambda < 1) ? 1 : 0;
  growth.smooth = static_cast<double>(along) / static_cast<double>(depths.size() - 1);
  return growth;
}

const Fact* Reading::fact(FactKind kind) const noexcept {
  for (const Fact& fact : run_.facts)
    if (fact.kind == kind) return &fact;
  return nullptr;
}

double Reading::number(const Fact& fact, const char* name) {
  const auto found = fact.numbers.find(name);
  return found == fact.numbers.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

const Transition* Reading::first_transition(std::initializer_list<Condition> to, std::int64_t before) const noexcept {
  for (const Transition& transition : run_.transitions) {
    if (transition.step >= before) break;
    const bool known = transition.site >= 0 && static_cast<std::size_t>(transition.site) < run_.sites.size();
    if (known && std::find(to.begin(), to.end(), transition.to) != to.end()) return &transition;
  }
  return nullptr;
}

const Origin* Reading::culprit() const noexcept {
  if (harm_.kind != Harm::Kind::fault || harm_.origin == nullptr) return nullptr;
  if (harm_.grew && of_growth(*harm_.origin)) return nullptr;
  if (!harm_.origin->cause.empty()) return harm_.origin;
  for (const Origin& other : run_.origins) {  // the same op may have been seen to make two kinds of value
    const bool same = other.outcome == Outcome::fault && other.step == harm_.origin->step &&
                      other.op == harm_.origin->op && other.module == harm_.origin->module;
    if (same && !other.cause.empty()) return &other;
  }
  return harm_.origin;
}

Hypothesis Reading::about_culprit(const Origin& origin, double confidence) const {
  Hypothesis result;
  result.cause = origin.cause;
  result.confidence = confidence;
  result.standing = origin.mechanism.empty() ? Standing::inferred : Standing::observed;
  result.step = harm_.step;
  const bool held = origin.phase == Phase::parameter || origin.phase == Phase::outside;
  result.phase = held ? "forward" : std::string(name_of(origin.phase));
  result.op = origin.op;
  result.forward_op = origin.forward_op;
  result.module = origin.module;
  result.param = origin.param;
  result.sample = origin.sample;
  if (!origin.stack.empty()) {
    result.file = origin.stack.front().file;
    result.line = origin.stack.front().line;
  }
  result.mechanism = origin.mechanism;
  result.description = origin.because.empty() ? "" : origin.because + ".";
  result.evidence.push_back({origin.step, origin.module, origin.because});
  if (!origin.sink.empty())
    result.evidence.push_back({origin.step, origin.sink, "the value reached the " + origin.sink});
  result.advice = origin.advice;
  return result;
}

Hypothesis Reading::about_growth(std::string_view cause, double confidence) const {
  Hypothesis result;
  result.cause = cause;
  result.confidence = confidence;
  result.step = harm_.step;
  if (harm_.onset >= 0) result.onset_step = harm_.onset;
  result.phase = "optimizer";
  const std::int32_t first = moved_most(*this);
  if (first >= 0) {
    result.module = site(first).module;
    const SiteRole role = site(first).role;
    if (role == SiteRole::parameter || role == SiteRole::gradient) result.param = site(first).name;
  }
  if (harm_.origin != nullptr) {  // where the growth ended; `param` is where it shows first
    result.op = harm_.origin->op;
    result.forward_op = harm_.origin->forward_op;
    result.module = harm_.origin->module;
  }
  result.evidence = growth_evidence();
  return result;
}

std::vector<Evidence> Reading::growth_evidence() const {
  struct Quantity {
    const char* what;
    Field field;
  };
  static constexpr Quantity quantities[] = {{"the loss", &StepRow::loss},
                                            {"the gradient norm", &StepRow::gradient_norm},
                                            {"the parameter norm", &StepRow::parameter_norm}};
  std::vector<Evidence> evidence;
  const std::int64_t from = std::max<std::int64_t>(harm_.onset - 1, 0);
  const std::int64_t end = harm_.kind == Harm::Kind::fault ? harm_.step : kNever;
  for (const Quantity& one : quantities) {
    const Series part = between(series(one.field), from, end);
    if (part.size() < 2) continue;
    evidence.push_back({from, "",
                        changed(one.what, part) + " in steps " + std::to_string(part.front().step) + " to " +
                            std::to_string(part.back().step)});
  }
  const Series update = between(series(&StepRow::update_ratio), from, end);
  if (!update.empty()) {
    const double most = quantile(values_of(update), 1);
    evidence.push_back({from, "", "one step moved the parameters by up to " + brief(most) + " times their own size"});
  }
  add_growth_in_time(run_, evidence);
  return evidence;
}

std::string brief(double value) {
  if (!std::isfinite(value) || value == 0) return show_number(value);
  const double unit = std::pow(10.0, std::floor(std::log10(std::fabs(value))) - 2);
  return unit > 0 && std::isfinite(unit) ? show_number(std::round(value / unit) * unit) : show_number(value);
}

std::string name_of_site(const Site& site) {
  const std::string name = "'" + site.name + "'";
  switch (site.role) {
    case SiteRole::loss: return "loss";
    case SiteRole::gradient: return "gradient of " + name;
    case SiteRole::parameter: return "parameter " + name;
    case SiteRole::activation: return site.op.empty() ? name : site.op + " in " + name;
    case SiteRole::clipping: return site.name.empty() ? "clipping" : "clipping of " + name;
    default: return site.name;
  }
}

bool floating(const Site& site) noexcept {
  static constexpr std::string_view integers[] = {"Long", "Int", "Short", "Char", "Byte",
                                                  "Bool", "int", "uint",  "bool"};
  return std::none_of(std::begin(integers), std::end(integers),
                      [&](std::string_view kind) { return site.dtype.starts_with(kind); });
}

std::string backward_name(std::string_view op) {
  std::string name;
  bool up = true;
  for (const char letter : base_name(op)) {
    if (letter == '_') {
      up = true;
      continue;
    }
    name += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(letter))) : letter;
    up = false;
  }
  return name + "Backward0";
}

}  // namespace firstfault::reason
