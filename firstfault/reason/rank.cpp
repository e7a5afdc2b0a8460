// Asks the rules in their order and ranks what they say.
#include <algorithm>
#include <set>

#include "firstfault/reason/engine.h"
#include "firstfault/reason/rules/clip_trends.h"
#include "firstfault/reason/rules/rule.h"
#include "firstfault/reason/standing/standing.h"

namespace firstfault::reason {
namespace {

constexpr std::size_t kMostEffects = 8;
constexpr double kLeast = 0.1;  ///< below it a rival is noise

struct Answer {
  Hypothesis hypothesis;
  bool stands_alone = false;
};

bool explained(const Origin& origin) { return !origin.mechanism.empty() || !origin.because.empty(); }

bool all_explained(const Run& run) { return std::all_of(run.origins.begin(), run.origins.end(), explained); }

bool by_step(const Evidence& a, const Evidence& b) { return a.step < b.step; }

Evidence told(const Run& run, const Transition& transition) {
  const Site& site = run.sites[static_cast<std::size_t>(transition.site)];
  const std::string name = name_of_site(site);
  return {transition.step, name,
          name + " turned " + std::string(name_of(transition.to)) + " (" + brief(transition.value) + ", before " +
              brief(transition.baseline) + ")"};
}

/// What followed: transitions and later origins, in order of time.
std::vector<Evidence> effects(const Run& run, const Hypothesis& cause) {
  std::vector<Evidence> found;
  const std::int64_t from = cause.onset_step.value_or(cause.step);
  for (const Transition& transition : run.transitions) {
    const bool known = transition.site >= 0 && static_cast<std::size_t>(transition.site) < run.sites.size();
    if (known && transition.step >= from && transition.to != Condition::healthy) found.push_back(told(run, transition));
  }
  const Origin* first = nullptr;
  for (const Origin& origin : run.origins) {
    if (origin.outcome != Outcome::fault || origin.step < from) continue;
    if (first == nullptr) {
      first = &origin;
      continue;
    }
    const std::string what = origin.op.empty() ? "a value that was bad already" : origin.op;
    found.push_back({origin.step, origin.module, what + " made NaN or Inf too, which reached the " + origin.sink});
  }
  std::stable_sort(found.begin(), found.end(), by_step);
  if (found.size() > kMostEffects) found.resize(kMostEffects);
  return found;
}

/// The op in which a divergence ended: where the first NaN or Inf was made.
void locate(const Run& run, Hypothesis& hypothesis) {
  if (!hypothesis.op.empty()) return;
  const auto ends_it = [&](const Origin& o) { return o.outcome == Outcome::fault && o.step == hypothesis.step; };
  const auto origin = std::find_if(run.origins.begin(), run.origins.end(), ends_it);
  if (origin == run.origins.end() || origin->op.empty()) return;
  hypothesis.phase = name_of(origin->phase);
  hypothesis.op = origin->op;
  hypothesis.forward_op = origin->forward_op;
  hypothesis.module = origin->module;
  if (origin->stack.empty()) return;
  hypothesis.file = origin->stack.front().file;
  hypothesis.line = origin->stack.front().line;
}

/// What a guard's ledger of clips said before the harm. The rule about clips has said it already.
void add_warnings(const Run& run, Hypothesis& hypothesis) {
  if (!clips_speak_for(hypothesis.cause)) return;
  for (Evidence& one : evidence_of(clip_trends(run, hypothesis.step))) hypothesis.evidence.push_back(std::move(one));
}

void finish(const Run& run, Hypothesis& hypothesis) {
  locate(run, hypothesis);
  add_warnings(run, hypothesis);
  for (Evidence& one : effects(run, hypothesis)) hypothesis.evidence.push_back(std::move(one));
  std::stable_sort(hypothesis.evidence.begin(), hypothesis.evidence.end(), by_step);
}

/// Rivals share what the best one leaves over.
void weigh(std::vector<Answer>& answers) {
  std::stable_sort(answers.begin(), answers.end(),
                   [](const Answer& a, const Answer& b) { return a.hypothesis.confidence > b.hypothesis.confidence; });
  if (answers.empty()) return;
  const double left = 1 - answers.front().hypothesis.confidence;
  for (auto rival = answers.begin() + 1; rival != answers.end(); ++rival)
    if (!rival->stands_alone) rival->hypothesis.confidence = std::min(rival->hypothesis.confidence, left);
  std::erase_if(answers, [](const Answer& answer) { return answer.hypothesis.confidence < kLeast; });
  std::stable_sort(answers.begin() + 1, answers.end(),
                   [](const Answer& a, const Answer& b) { return a.hypothesis.confidence > b.hypothesis.confidence; });
}

/// A run without rows (a trace) is read once.
std::set<std::int32_t> optimizers(const Run& run) {
  std::set<std::int32_t> found;
  for (const StepRow& row : run.rows) found.insert(row.optimizer);
  if (found.empty()) found.insert(0);
  return found;
}

/// A fault belongs to the optimizer whose step it was.
bool concerns(const Reading& reading, std::int32_t optimizer) {
  const StepRow* row = reading.harm().kind == Harm::Kind::fault ? reading.row(reading.harm().step) : nullptr;
  return row == nullptr || row->optimizer == optimizer;
}

/// Of two answers with the same cause, the surer one.
void add(std::vector<Answer>& answers, Answer answer) {
  for (Answer& known : answers) {
    if (known.hypothesis.cause != answer.hypothesis.cause) continue;
    if (answer.hypothesis.confidence > known.hypothesis.confidence) known = std::move(answer);
    return;
  }
  answers.push_back(std::move(answer));
}

std::vector<Hypothesis> judged(const Run& run) {
  std::vector<Answer> answers;
  for (const std::int32_t optimizer : optimizers(run)) {
    const Reading reading(run, optimizer);
    if (!concerns(reading, optimizer)) continue;
    for (const Rule& rule : rules())
      if (auto answer = rule.judge(reading)) add(answers, {std::move(*answer), rule.stands_alone});
  }
  weigh(answers);
  std::vector<Hypothesis> ranked;
  for (Answer& answer : answers) {
    finish(run, answer.hypothesis);
    ranked.push_back(std::move(answer.hypothesis));
  }
  return judge_by_experiments(std::move(ranked), experiments_of(run.facts));
}

}  // namespace

std::vector<Hypothesis> hypotheses(const Run& run) {
  if (all_explained(run)) return judged(run);
  Run copy = run;
  for (Origin& origin : copy.origins)
    if (!explained(origin)) explain(origin);
  return judged(copy);
}

}  // namespace firstfault::reason
