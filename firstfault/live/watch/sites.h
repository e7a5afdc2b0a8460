// The sites of a run, by what identifies them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "firstfault/events/health.h"
#include "firstfault/events/site.h"

namespace firstfault::watch {

/// What makes a site the same from step to step. `what` and `after` mean different things per role.
struct SiteKey {
  SiteRole role;
  std::int32_t module = -1;
  std::uintptr_t what = 0;
  std::int32_t after = -1;
  auto operator<=>(const SiteKey&) const = default;
};

/// Not thread-safe.
class Sites {
 public:
  static constexpr std::size_t kMax = 4096;

  /// Index of the site; make() gives it where the key is new. -1: there are too many.
  template <class Make>
  std::int32_t find(const SiteKey& key, Make&& make) {
    if (const auto known = index_.find(key); known != index_.end()) return known->second;
    if (sites_.size() >= kMax) return -1;
    const auto index = static_cast<std::int32_t>(sites_.size());
    sites_.push_back(make());
    index_.emplace(key, index);
    return index;
  }

  const std::vector<Site>& all() const noexcept { return sites_; }

 private:
  std::map<SiteKey, std::int32_t> index_;
  std::vector<Site> sites_;
};

/// A site that is measured more than once in a step (micro-batches, a module called in a loop) keeps the worst.
void merge(Health& into, const Health& fresh);

}  // namespace firstfault::watch
