// Which of a run's steps are kept, and in what detail. One policy for the run in memory and for the run file, so that
// both explain alike.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace firstfault::record {

/// A row with `sites` (StepRow::sites) is kept for the first and the newest steps, and around each of the first
/// transitions. Rows of other steps are kept without sites, and thinned out by powers of two: every row at first, then
/// every second one, every fourth … as many as leave at most `rows` in all. A row in which something changed stays.
struct RetentionOptions {
  int first = 64;           ///< steps from the start with sites
  int newest = 512;         ///< steps up to now with sites
  int around = 16;          ///< steps before and after a transition with sites
  int surroundings = 32;    ///< that many steps with transitions have their surroundings kept
  int changed_rows = 2048;  ///< that many steps with transitions keep their row
  int rows = 8192;          ///< in all; at least twice the pinned ones: first, newest, changed, surroundings

  /// Health values (64 bytes each) in all. Half of them at least are for the newest steps, a quarter at most each for
  /// the first steps and the surroundings of transitions: with very many sites all three shrink. The newest row always
  /// has its sites. 1e6 are 64 MB: 200 sites need a third of it.
  std::int64_t health_values = 1'000'000;
};

/// Holds numbers of steps only; its owner holds the rows and loses what it is told to. No lock: one thread at a time.
class Retention {
 public:
  explicit Retention(const RetentionOptions& options = {}) : options_(options) {}

  struct Lost {
    std::vector<std::int64_t> sites;  ///< steps whose row loses its sites
    std::vector<std::int64_t> rows;   ///< steps whose row goes, sites included; never also in `sites`
  };

  /// A row came, with that many health values; steps must rise. What must go for it is appended to `lost`.
  void add_row(std::int64_t step, std::int64_t health_values, Lost& lost);
  /// Something changed in `step`. Its row may be there already (among the newest) or come later.
  void add_transition(std::int64_t step);

  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(window_.size() + kept_.size()); }

 private:
  struct Row {
    std::int64_t step = 0;
    std::int64_t ordinal = 0;  ///< counts the rows that came
    std::int64_t values = 0;
    bool pinned = false;      ///< the row stays
    bool with_sites = false;  ///< and so do its sites
  };

  bool changed(std::int64_t step) const;
  bool near_transition(std::int64_t step) const;
  void pin_surroundings(Row& row, std::int64_t spare);
  void retire_oldest(Lost& lost);
  void thin(Lost& lost);

  RetentionOptions options_;
  std::deque<Row> window_;             ///< the newest, with sites
  std::vector<Row> kept_;              ///< older ones, by step
  std::vector<std::int64_t> centres_;  ///< steps whose surroundings are kept, ascending
  std::int64_t last_changed_ = -1;
  std::int64_t changed_rows_ = 0;
  std::int64_t ordinal_ = 0;
  std::int64_t stride_ = 1;
  std::int64_t window_values_ = 0, first_values_ = 0, around_values_ = 0;
};

}  // namespace firstfault::record
