// What a record says of the norms that were measured, and who hears of it.
#include "firstfault/live/guard/record.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <ostream>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/base/numbers.h"
#include "firstfault/live/measure/scan.h"

namespace firstfault {
namespace guard {
namespace {

std::string name_at(const ClipOptions& options, std::int64_t index) {
  const auto at = static_cast<std::size_t>(index);
  return at < options.names.size() ? options.names[at] : "";
}

std::string shown(std::int64_t index, const std::string& name) {
  return name.empty() ? "parameter " + std::to_string(index) : printable(name);
}

std::string shown(const BadGradient& bad) {
  std::string text = shown(bad.index, bad.name);
  if (bad.counts.total() == 0) return text;
  return text + " (" + names_of(bad.counts.bits()) + " in " + show_count(bad.counts.total()) + " of " +
         show_count(bad.elements) + " elements)";
}

double share_of(double norm, double total, double p) {
  if (!(total > 0)) return 0;
  return std::isinf(p) ? (norm == total ? 1 : 0) : std::pow(norm / total, p);
}

[[noreturn]] void refuse(const ClipRecord& record, std::size_t gradients, const char* where) {
  constexpr std::size_t kShown = 8;
  const auto bad = record.nonfinite.size();
  std::string text = "firstfault: " + std::string(where) + ": " + show_count(static_cast<std::int64_t>(bad)) + " of " +
                     show_count(static_cast<std::int64_t>(gradients)) + (gradients == 1 ? " gradient" : " gradients") +
                     (bad == 1 ? " is" : " are") + " not finite: ";
  for (std::size_t i = 0; i < std::min(bad, kShown); ++i) text += (i > 0 ? ", " : "") + shown(record.nonfinite[i]);
  if (bad > kShown) text += ", …";
  text += ". No gradient was changed. A trace names the op that made it; on_nonfinite \"skip\" or \"zero\" goes on.";
  throw Error(text);
}

struct Listeners {
  std::mutex mutex;
  std::vector<ClipListener*> all;
  std::atomic<int> count{0};
};

// Never destroyed: clips may come from threads that outlive main().
Listeners& listeners() {
  static auto* const instance = new Listeners;
  return *instance;
}

}  // namespace

void fill(ClipRecord& record, const Measured& measured, const ClipOptions& options) {
  std::vector<std::int64_t> indices;
  for (const Gradient& gradient : measured.gradients) indices.push_back(gradient.index);
  record.norm_type = measured.p;
  fill(record, indices, measured.norms, options);
}

void fill(ClipRecord& record, const std::vector<std::int64_t>& indices, const std::vector<double>& norms,
          const ClipOptions& options) {
  record.parts = static_cast<std::int64_t>(norms.size());
  std::vector<double> finite;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (std::isfinite(norms[i])) {
      finite.push_back(norms[i]);
      order.push_back(i);
    } else {
      record.nonfinite.push_back({.index = indices[i], .name = name_at(options, indices[i])});
    }
  }
  record.norm = norm_of_norms(finite, record.norm_type);
  record.step = options.lr * record.norm;
  const auto most = order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), ClipRecord::kLargest));
  std::partial_sort(order.begin(), most, order.end(),
                    [&](std::size_t a, std::size_t b) { return norms[a] > norms[b]; });
  for (auto i = order.begin(); i != most && norms[*i] > 0; ++i) {
    const double share = share_of(norms[*i], record.norm, record.norm_type);
    record.largest.push_back({indices[*i], name_at(options, indices[*i]), norms[*i], share});
  }
}

bool settle_nonfinite(ClipRecord& record, const Measured& measured, OnNonfinite policy, const char* where) {
  if (record.nonfinite.empty()) return true;
  auto bad = record.nonfinite.begin();
  for (std::size_t i = 0; i < measured.norms.size(); ++i) {
    if (std::isfinite(measured.norms[i])) continue;
    bad->counts = measure::scan_full(measured.gradients[i].values).counts;
    bad->elements = measured.gradients[i].values.numel();
    ++bad;
  }
  if (policy == OnNonfinite::error) refuse(record, measured.norms.size(), where);
  record.skipped = policy == OnNonfinite::skip;
  if (record.skipped) return false;
  record.zeroed = true;
  for (std::size_t i = 0; i < measured.norms.size(); ++i) {
    if (std::isfinite(measured.norms[i])) continue;
    set_zero(measured.gradients[i]);
    measured.norms[i] = 0;
  }
  return true;
}

void refuse_other_rank(const char* where) {
  throw Error("firstfault: " + std::string(where) +
              ": a gradient of another rank is not finite. No gradient was changed.");
}

double angle_of(const Clamped& sums) {
  const double across = std::max(0.0, sums.before * sums.after - sums.across * sums.across);
  return std::atan2(std::sqrt(across), sums.across);
}

void check(double limit, const ClipOptions& options, const char* where) {
  const std::string text = "firstfault: " + std::string(where) + ": ";
  if (!(limit >= 0)) {
    throw Error(text + "the limit is " + show_number(limit) + "; it takes a number that is not negative.",
                Error::Kind::bad_value);
  }
  if (!(options.norm_type > 0)) {
    throw Error(text + "norm_type is " + show_number(options.norm_type) + "; it takes a number above 0, or infinity.",
                Error::Kind::bad_value);
  }
}

void tell_listeners(const ClipRecord& record, at::TensorList gradients) {
  Listeners& known = listeners();
  if (known.count.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(known.mutex);
  for (ClipListener* listener : known.all) listener->heard(record, gradients);
}

}  // namespace guard

void add_clip_listener(ClipListener& listener) {
  auto& known = guard::listeners();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(&listener);
  known.count.store(static_cast<int>(known.all.size()), std::memory_order_release);
}

void remove_clip_listener(ClipListener& listener) {
  auto& known = guard::listeners();
  const std::lock_guard lock(known.mutex);
  std::erase(known.all, &listener);
  known.count.store(static_cast<int>(known.all.size()), std::memory_order_release);
}

std::ostream& operator<<(std::ostream& out, const ClipRecord& record) {
  if (record.pending()) return out << "not read yet";
  out << "norm " << show_number(record.norm);
  if (!record.largest.empty()) {
    const ClipShare& first = record.largest.front();
    out << " (" << show_number(std::round(100 * first.share)) << " % " << guard::shown(first.index, first.name) << ")";
  }
  if (record.skipped) out << ", skipped";
  if (record.zeroed) out << ", " << record.nonfinite.size() << " set to 0";
  if (!record.nonfinite.empty()) out << ", not finite: " << guard::shown(record.nonfinite.front());
  if (record.nonfinite.size() > 1) out << " and " << record.nonfinite.size() - 1 << " more";
  if (!record.clipped()) return out << ", not clipped";
  out << ", clipped to " << show_number(record.limit) << " (x " << show_number(record.coefficient) << ")";
  constexpr double kDegrees = 57.29577951308232;
  if (record.angle > 0) out << ", turned by " << show_number(kDegrees * record.angle) << " degrees";
  return out;
}

}  // namespace firstfault
