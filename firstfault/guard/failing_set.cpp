#include "firstfault/guard/failing_set.h"

#include <algorithm>
#include <numeric>

namespace firstfault::guard {
namespace {

using Samples = std::vector<std::int64_t>;

constexpr std::size_t kMostSets = 8;
constexpr std::int64_t kProbes = 3, kOmitted = 4;

struct Undecided {};

class Search {
 public:
  Search(std::int64_t n, const Fails& fails) : n_(n), fails_(fails) {}

  FailingSets run(std::optional<bool> empty_fails);
  FailingSets give(Blame blame) {
    if (blame != Blame::some) found_.sets.clear();
    found_.blame = blame;
    return found_;
  }

 private:
  bool ask(Samples samples) {
    ++found_.calls;
    std::sort(samples.begin(), samples.end());
    const auto answer = fails_(samples);
    if (!answer) throw Undecided();
    return *answer;
  }
  bool most(const Samples& samples) const { return 2 * static_cast<std::int64_t>(samples.size()) > n_; }
  bool every_one_fails();
  bool every_one_is_needed(const Samples& all);
  bool prefix_fails(const Samples& needed, const Samples& rest, std::size_t length);
  Samples next_set(Samples rest);

  const std::int64_t n_;
  const Fails& fails_;
  FailingSets found_;
};

// A few that lie far apart.
bool Search::every_one_fails() {
  if (n_ < 2 * kProbes) return false;
  for (std::int64_t i = 1; i <= kProbes; ++i) {
    if (!ask({n_ * i / (kProbes + 1)})) return false;
  }
  return true;
}

bool Search::every_one_is_needed(const Samples& all) {
  if (n_ < 2 * kOmitted) return false;
  for (std::int64_t i = 1; i <= kOmitted; ++i) {
    Samples rest = all;
    rest.erase(rest.begin() + n_ * i / (kOmitted + 1));
    if (ask(std::move(rest))) return false;
  }
  return true;
}

bool Search::prefix_fails(const Samples& needed, const Samples& rest, std::size_t length) {
  Samples samples = needed;
  samples.insert(samples.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length));
  return ask(std::move(samples));
}

// `rest` fails. Gives a set that fails alone, none of whose samples can be left out.
Samples Search::next_set(Samples rest) {
  Samples needed;
  while (true) {
    std::size_t passes = 0, fails = rest.size();  // lengths of prefixes, the first one not asked: it was, or is 0
    while (fails - passes > 1) {
      const std::size_t middle = passes + (fails - passes) / 2;
      (prefix_fails(needed, rest, middle) ? fails : passes) = middle;
    }
    needed.push_back(rest[fails - 1]);
    rest.resize(fails - 1);
    if (rest.empty() || most(needed) || prefix_fails(needed, rest, 0)) return needed;
  }
}

FailingSets Search::run(std::optional<bool> empty_fails) {
  Samples all(static_cast<std::size_t>(n_));
  std::iota(all.begin(), all.end(), 0);
  if (empty_fails ? *empty_fails : ask({})) return give(Blame::none);
  if (!ask(all)) return give(Blame::none);
  if (every_one_fails()) return give(Blame::all);
  if (every_one_is_needed(all)) return give(Blame::together);
  do {
    Samples set = next_set(all);
    if (set.size() > 1 && most(set)) return give(Blame::together);
    std::sort(set.begin(), set.end());
    found_.sets.push_back(set);
    const auto blamed = static_cast<std::int64_t>(found_.samples().size());
    if (found_.sets.size() > kMostSets || 2 * blamed > n_) return give(Blame::all);
    std::erase_if(all, [&](std::int64_t one) { return std::binary_search(set.begin(), set.end(), one); });
  } while (ask(all));
  return give(Blame::some);
}

}  // namespace

std::vector<std::int64_t> FailingSets::samples() const {
  std::vector<std::int64_t> all;
  for (const auto& set : sets) all.insert(all.end(), set.begin(), set.end());
  std::sort(all.begin(), all.end());
  return all;
}

FailingSets smallest_failing_sets(std::int64_t n, const Fails& fails, std::optional<bool> empty_fails) {
  Search search(n, fails);
  if (n <= 0) return {Blame::none, {}, 0};
  try {
    return search.run(empty_fails);
  } catch (const Undecided&) {
    return search.give(Blame::undecided);
  }
}

}  // namespace firstfault::guard
