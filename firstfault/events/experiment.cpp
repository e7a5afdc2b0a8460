// An experiment as a fact of the run, and back.
#include "firstfault/events/experiment.h"

#include <algorithm>

namespace firstfault {
namespace {

constexpr std::size_t kMostSamples = 16;
constexpr double kLastOutcome = static_cast<double>(ExperimentOutcome::out_of_budget);

double number(const Fact& fact, const std::string& name) {
  const auto found = fact.numbers.find(name);
  return found == fact.numbers.end() ? 0 : found->second;
}

std::int64_t whole(const Fact& fact, const std::string& name) {
  const double value = number(fact, name);
  return value >= 0 && value < 1e15 ? static_cast<std::int64_t>(value) : 0;
}

std::string sample_name(std::size_t i) { return "sample_" + std::to_string(i); }

Experiment experiment_of(const Fact& fact) {
  Experiment experiment;
  experiment.name = fact.module;
  const double outcome = number(fact, "outcome");
  if (outcome >= 0 && outcome <= kLastOutcome) {
    experiment.outcome = static_cast<ExperimentOutcome>(static_cast<int>(outcome));
  }
  experiment.step = fact.last_step;
  experiment.op = fact.op;
  for (std::size_t i = 0; i < kMostSamples && fact.numbers.count(sample_name(i)); ++i) {
    experiment.samples.push_back(whole(fact, sample_name(i)));
  }
  experiment.size = whole(fact, "size");
  experiment.replays = whole(fact, "replays");
  experiment.seconds = number(fact, "seconds");
  const auto text = fact.detail.find(": ");
  experiment.text = text == std::string::npos ? fact.detail : fact.detail.substr(text + 2);
  return experiment;
}

}  // namespace

Fact fact_of(const Experiment& experiment) {
  Fact fact;
  fact.kind = FactKind::experiment;
  fact.module = experiment.name;
  fact.op = experiment.op;
  // Facts with the same text are one: the step keeps those of two steps apart.
  fact.detail = "step " + std::to_string(experiment.step) + ": " + experiment.text;
  fact.first_step = fact.last_step = experiment.step;
  fact.numbers["outcome"] = static_cast<double>(experiment.outcome);
  fact.numbers["size"] = static_cast<double>(experiment.size);
  fact.numbers["replays"] = static_cast<double>(experiment.replays);
  fact.numbers["seconds"] = experiment.seconds;
  for (std::size_t i = 0; i < std::min(experiment.samples.size(), kMostSamples); ++i) {
    fact.numbers[sample_name(i)] = static_cast<double>(experiment.samples[i]);
  }
  return fact;
}

std::vector<Experiment> experiments_of(const std::vector<Fact>& facts) {
  std::vector<Experiment> experiments;
  for (const Fact& fact : facts) {
    if (fact.kind == FactKind::experiment) experiments.push_back(experiment_of(fact));
  }
  return experiments;
}

}  // namespace firstfault
