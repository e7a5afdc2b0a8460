// Unwinding and interning; resolving an address is left to symbolize.cpp.
#include "firstfault/live/intercept/native_places.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <torch/csrc/profiler/unwind/unwind.h>

#include "firstfault/live/intercept/per_thread.h"
#include "firstfault/live/intercept/symbolize.h"

namespace firstfault::intercept {
namespace {

struct Paths {
  std::shared_mutex mutex;
  std::unordered_map<std::string, std::int32_t> index;
  std::vector<std::string> names;
};

Paths& paths() {
  static Paths& instance = *new Paths;
  return instance;
}

bool lies_within(const std::string& path, const std::string& scope) {
  return path.compare(0, scope.size(), scope) == 0 && (path.size() == scope.size() || path[scope.size()] == '.');
}

// The owner of the parameter that the op reads, unless a scope is open that it lies outside of: a tensor that two
// modules share has one owner only.
std::int32_t module_here(std::int32_t owner) {
  const auto& scopes = module_scopes();
  if (scopes.empty()) return owner;
  const std::shared_lock lock(paths().mutex);
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
    const auto found = paths().index.find(*scope);
    if (found == paths().index.end()) continue;
    const bool known = owner >= 0 && owner < std::ssize(paths().names);
    return known && lies_within(paths().names[owner], *scope) ? owner : found->second;
  }
  return owner;
}

class NativePlaces final : public Places {
 public:
  explicit NativePlaces(bool stacks) : stacks_(stacks) {}

  PlaceId here(std::int32_t owner, bool with_stack) override {
    Key key{module_here(owner), {}};
    if (stacks_ || with_stack) key.second = torch::unwind::unwind();
    const std::lock_guard lock(mutex_);
    if (places_.size() >= kMaxPlaces) {
      const auto known = ids_.find(key);
      return known == ids_.end() ? kNowhere : known->second;
    }
    const auto [entry, fresh] = ids_.try_emplace(std::move(key), static_cast<PlaceId>(places_.size()));
    if (fresh) places_.push_back(&entry->first);
    return entry->second;
  }

  std::int32_t module_of(PlaceId place) const override {
    const std::lock_guard lock(mutex_);
    return places_[place]->first;
  }

  std::vector<SourceFrame> frames_of(PlaceId place) override {
    std::vector<void*> addresses;
    {
      const std::lock_guard lock(mutex_);
      addresses = places_[place]->second;
    }
    return symbolize(addresses);
  }

 private:
  using Key = std::pair<std::int32_t, std::vector<void*>>;
  static constexpr std::size_t kMaxPlaces = 1 << 16;

  const bool stacks_;
  mutable std::mutex mutex_;
  std::map<Key, PlaceId> ids_;
  std::vector<const Key*> places_;
};

}  // namespace

std::unique_ptr<Places> make_native_places(bool stacks) { return std::make_unique<NativePlaces>(stacks); }

std::vector<std::string>& module_scopes() {
  struct Scopes {
    std::vector<std::string> names;
  };
  return per_thread<Scopes>().names;
}

void set_module_paths(const std::vector<std::string>& names) {
  const std::unique_lock lock(paths().mutex);
  paths().index.clear();
  paths().names = names;
  for (std::size_t i = 0; i < names.size(); ++i) paths().index.insert_or_assign(names[i], static_cast<std::int32_t>(i));
}

}  // namespace firstfault::intercept
