// What a trace costs a C++ program: the whole SGD step of a small MLP, plain and observed blocks in turn.
// usage: bench_trace_mlp [--json] [STEPS]
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "firstfault/live/session.h"

namespace {

constexpr int kWarmUp = 50;
constexpr int kBlock = 20;  // steps

struct Training {
  torch::nn::Sequential model{torch::nn::Linear(64, 256), torch::nn::ReLU(), torch::nn::Linear(256, 256),
                              torch::nn::ReLU(), torch::nn::Linear(256, 10)};
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(1e-3)};
  torch::Tensor x = torch::randn({64, 64});
  torch::Tensor y = torch::randint(10, {64}, torch::kLong);

  void step() {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(x), y).backward();
    optimizer.step();
  }
};

struct Block {
  double nanoseconds;
  long faults;
};

struct Reading {
  double plain_ms, ratio, error, plain_faults, observed_faults;
};

double thread_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

long page_faults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

Block run_block(Training& training) {
  const long faults = page_faults();
  const double begin = thread_nanoseconds();
  for (int i = 0; i < kBlock; ++i) training.step();
  const double nanoseconds = thread_nanoseconds() - begin;
  return {nanoseconds, page_faults() - faults};
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const double part = at - static_cast<double>(low);
  return values[low] * (1 - part) + values[std::min(low + 1, values.size() - 1)] * part;
}

// Whatever is registered now stays so; for a plain block, this thread calls no callbacks.
Reading compare(Training& training, int rounds) {
  constexpr int kWarmUpRounds = (kWarmUp + kBlock - 1) / kBlock;
  std::vector<double> plain, ratios;
  double faults[2] = {0, 0};
  for (int round = -kWarmUpRounds; round < rounds; ++round) {
    Block blocks[2];
    for (const bool observed : {round % 2 == 0, round % 2 != 0}) {
      at::enableRecordFunction(observed);
      blocks[observed] = run_block(training);
      if (round < 0) continue;
      faults[observed] += static_cast<double>(blocks[observed].faults) / (rounds * kBlock);
    }
    if (round < 0) continue;
    plain.push_back(blocks[0].nanoseconds);
    ratios.push_back(blocks[1].nanoseconds / blocks[0].nanoseconds);
  }
  at::enableRecordFunction(true);
  const double spread = quantile(ratios, 0.75) - quantile(ratios, 0.25);
  return {quantile(plain, 0.5) / kBlock / 1e6, quantile(ratios, 0.5), 1.2533 * spread / 1.349 / std::sqrt(rounds),
          faults[0], faults[1]};
}

std::unique_ptr<at::ObserverContext> nothing(const at::RecordFunction&) { return nullptr; }
void nothing_more(const at::RecordFunction&, at::ObserverContext*) {}

Reading measure_empty_callback(Training& training, int rounds) {
  using Callback = at::RecordFunctionCallback;
  const auto ops = at::addGlobalCallback(
      Callback(nothing, nothing_more).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  const auto nodes =
      at::addGlobalCallback(Callback(nothing, nothing_more).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  const Reading reading = compare(training, rounds);
  at::removeCallback(ops);
  at::removeCallback(nodes);
  return reading;
}

Reading measure_trace(Training& training, int rounds, bool stacks) {
  firstfault::Trace trace({.stacks = stacks});
  trace.watch(*training.model, "model");
  return compare(training, rounds);
}

void print(const char* name, const Reading& r, double target, bool json) {
  if (json) {
    std::printf(
        "{\"work\": \"MLP 64-256-256-10, C++ SGD step\", \"observer\": \"%s\", \"plain_ms\": %.4f, "
        "\"ratio\": %.4f, \"error\": %.4f, \"plain_faults\": %.2f, \"observed_faults\": %.2f}\n",
        name, r.plain_ms, r.ratio, r.error, r.plain_faults, r.observed_faults);
    return;
  }
  std::string verdict;
  if (target > 0) {
    char text[64];
    std::snprintf(text, sizeof(text), "(<= %.2f: %s)", target, r.ratio <= target ? "met" : "missed");
    verdict = text;
  }
  std::printf("%-16s %9.3f %7.3f ±%.3f %-16s %6.1f / %.1f\n", name, r.plain_ms, r.ratio, r.error, verdict.c_str(),
              r.plain_faults, r.observed_faults);
}

}  // namespace

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  const int steps = argc > 1 + json ? std::atoi(argv[1 + json]) : 4000;
  const int rounds = std::max(2, steps / kBlock);
  at::set_num_threads(1);
  torch::manual_seed(0);
  Training training;
  if (!json) {
    std::printf("MLP 64-256-256-10, batch 64, C++: whole SGD step, %d observed; thread time\n", rounds * kBlock);
    std::printf("%-16s %9s %7s %23s %14s\n", "observer", "plain, ms", "ratio", "", "page faults");
  }
  print("empty callback", measure_empty_callback(training, rounds), 0, json);
  print("without stacks", measure_trace(training, rounds, false), 1.5, json);
  print("with stacks", measure_trace(training, rounds, true), 1.7, json);
}
