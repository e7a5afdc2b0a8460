#include "firstfault/record/read_run.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/base/numbers.h"
#include "firstfault/record/history.h"
#include "firstfault/record/limits.h"
#include "firstfault/record/storage/fork_guard.h"
#include "firstfault/record/storage/json.h"
#include "firstfault/record/storage/names.h"
#include "firstfault/record/storage/opened_run.h"
#include "firstfault/record/storage/place.h"
#include "firstfault/record/storage/schema.h"

namespace firstfault {
namespace {

using namespace record;

// Of a file that nobody tampered with, none of these is reached.
constexpr std::int64_t kMostRows = 20'000;
constexpr std::int64_t kMostHealth = 4'000'000;  ///< values of 64 bytes
constexpr std::int64_t kMostModules = 1'000'000;
constexpr std::int64_t kMostText = 256'000'000;  ///< bytes, of all strings
constexpr std::size_t kLongestJson = 8'000'000;  ///< bytes; parsed it may take 25 times as many

class Reader {
 public:
  Reader(OpenedRun opened, std::string path) : opened_(std::move(opened)), path_(std::move(path)) {}
  Run read();

 private:
  using Row = std::function<void(const Statement&)>;

  /// Calls `row` for each row, at most `most` times. What is damaged ends the table with a warning; a row that `row`
  /// throws at is left out.
  void each(const char* table, const std::string& columns, std::int64_t most, const Row& row);
  std::string text(const Statement& row, int column);
  std::string json(const Statement& row, int column);
  template <class Enum>
  Enum name(const Statement& row, int column);

  void read_run();
  void read_setup();
  void read_sites();
  void read_steps();
  void read_health();
  void read_transitions();
  void read_facts();
  void read_origins();
  void read_actions();
  void read_texts();
  void check_commits();
  void warn(const std::string& text) { run_.warnings.push_back(text); }

  OpenedRun opened_;
  std::string path_;
  Run run_;
  std::int64_t commits_ = 0;
  std::int64_t text_left_ = kMostText;
  int tables_read_ = 0;
};

void Reader::each(const char* table, const std::string& columns, std::int64_t most, const Row& row) {
  std::int64_t count = 0;
  std::int64_t bad = 0;
  try {
    Statement statement(opened_.database.get(), "SELECT " + columns + " FROM " + table);
    while (statement.next()) {
      if (count++ >= most) {
        warn("Table " + std::string(table) + " is larger than a run file's: the rest of it is left out.");
        break;
      }
      try {
        row(statement);
      } catch (const std::exception&) {
        ++bad;
      }
    }
    ++tables_read_;
  } catch (const SqliteError& error) {
    warn("Table " + std::string(table) + " is damaged (" + error.what() + "); " + show_count(count) +
         " of its rows were read.");
  }
  if (bad > 0) warn(show_count(bad) + " rows of table " + table + " are damaged and left out.");
}

std::string Reader::text(const Statement& row, int column) {
  const std::string_view view = row.text(column);
  text_left_ -= static_cast<std::int64_t>(view.size());
  if (text_left_ < 0) throw Error("too much text");
  return std::string(view);
}

std::string Reader::json(const Statement& row, int column) {
  std::string value = text(row, column);
  if (value.size() > kLongestJson) throw Error("too long");
  return value;
}

template <class Enum>
Enum Reader::name(const Statement& row, int column) {
  const auto known = from_stored_name<Enum>(row.text(column));
  if (!known) throw Error("unknown name");
  return *known;
}

void Reader::read_run() {
  bool found = false;
  each("run", "state, commits, steps, ops", 1, [&](const Statement& row) {
    commits_ = row.integer(1);
    run_.steps = row.integer(2);
    run_.ops = row.integer(3);
    run_.state = name<RunState>(row, 0);
    found = true;
  });
  try {
    if (found && run_.state == RunState::recording) {
      const ProcessIdentity process = recording_process(opened_.database);
      if (!is_being_recorded(process, path_)) run_.state = RunState::died;
    }
  } catch (const SqliteError&) {
    found = false;
  }
  if (!found) run_.state = RunState::died;
}

void Reader::read_setup() {
  each("setup", "json", 1, [&](const Statement& row) { from_json(json(row, 0), run_.setup); });
  each("modules", "path, type, parameters", kMostModules, [&](const Statement& row) {
    run_.setup.modules.push_back({text(row, 0), text(row, 1), row.integer(2)});
  });
}

void Reader::read_sites() {
  each("sites", "id, role, module, name, op, dtype, shape, position", kMaxSites, [&](const Statement& row) {
    // A site that is missing leaves its place, since all else refers to sites by index.
    const std::int64_t id = row.integer(0);
    if (id < static_cast<std::int64_t>(run_.sites.size()) || id >= kMaxSites) throw Error("bad id");
    run_.sites.resize(static_cast<std::size_t>(id) + 1);
    Site& site = run_.sites.back();
    site.module = text(row, 2);
    site.name = text(row, 3);
    site.op = text(row, 4);
    site.dtype = text(row, 5);
    site.order = static_cast<std::int32_t>(row.integer(7));
    site.role = name<SiteRole>(row, 1);
    from_json(json(row, 6), site.shape);
  });
}

void Reader::read_steps() {
  const char* columns =
      "step, seconds, loss, loss_state, gradient_norm, update_ratio, parameter_norm, lr, loss_scale, backwards, "
      "gradients_left_over, skipped, reset_state, optimizer, logged";
  each("steps", columns, kMostRows, [&](const Statement& row) {
    StepRow step;
    step.step = row.integer(0);
    if (!run_.rows.empty() && step.step <= run_.rows.back().step) throw Error("out of order");
    step.seconds = row.number(1);
    step.loss = row.number(2);
    step.loss_state = name<StepRow::Loss>(row, 3);
    step.gradient_norm = row.number(4);
    step.update_ratio = row.number(5);
    step.parameter_norm = row.number(6);
    step.lr = row.number(7);
    step.loss_scale = row.number(8);
    step.backwards = static_cast<std::int32_t>(row.integer(9));
    step.gradients_left_over = row.integer(10) != 0;
    step.skipped = row.integer(11) != 0;
    step.reset_state = row.integer(12) != 0;
    step.optimizer = static_cast<std::int32_t>(row.integer(13));
    from_json(row.text(14), step.logged);
    run_.rows.push_back(std::move(step));
  });
}

void Reader::read_health() {
  std::int64_t left = kMostHealth;
  each("health", "step, data", kMostRows, [&](const Statement& row) {
    const std::int64_t step = row.integer(0);
    const auto found = std::lower_bound(run_.rows.begin(), run_.rows.end(), step,
                                        [](const StepRow& one, std::int64_t wanted) { return one.step < wanted; });
    if (found == run_.rows.end() || found->step != step) throw Error("no such step");
    const auto data = row.blob(1);
    const std::size_t sites = data.size() / sizeof(Health);
    if (data.size() % sizeof(Health) != 0 || sites > run_.sites.size()) throw Error("bad length");
    left -= static_cast<std::int64_t>(sites);
    if (left < 0) throw Error("too much");
    found->sites.resize(sites);
    if (sites > 0) std::memcpy(found->sites.data(), data.data(), data.size());
  });
}

void Reader::read_transitions() {
  const char* columns = "step, site, from_state, to_state, value, baseline, confidence";
  each("transitions", columns, kMaxTransitions, [&](const Statement& row) {
    Transition event;
    event.step = row.integer(0);
    const std::int64_t site = row.integer(1);
    if (site < -1 || site >= static_cast<std::int64_t>(run_.sites.size())) throw Error("no such site");
    event.site = static_cast<std::int32_t>(site);
    event.from = name<Condition>(row, 2);
    event.to = name<Condition>(row, 3);
    event.value = row.number(4);
    event.baseline = row.number(5);
    event.confidence = row.number(6);
    run_.transitions.push_back(event);
  });
}

void Reader::read_facts() {
  const char* columns = "kind, module, op, detail, first_step, last_step, count, numbers, file, line";
  each("facts", columns, kMaxFacts, [&](const Statement& row) {
    Fact fact;
    fact.kind = name<FactKind>(row, 0);
    fact.module = text(row, 1);
    fact.op = text(row, 2);
    fact.detail = text(row, 3);
    fact.first_step = row.integer(4);
    fact.last_step = row.integer(5);
    fact.count = row.integer(6);
    from_json(json(row, 7), fact.numbers);
    fact.file = text(row, 8);
    fact.line = static_cast<int>(row.integer(9));
    run_.facts.push_back(std::move(fact));
  });
}

void Reader::read_origins() {
  each("origins", "json", kMaxOrigins, [&](const Statement& row) {
    Origin origin;
    from_json(json(row, 0), origin);
    run_.origins.push_back(std::move(origin));
  });
  sort_origins(run_.origins);
}

void Reader::read_actions() {
  if (!opened_.has_actions) return;
  each("actions", "json", kMaxActions, [&](const Statement& row) {
    GuardAction action;
    from_json(json(row, 0), action);
    run_.actions.push_back(std::move(action));
  });
}

void Reader::read_texts() {
  each("uninspected", "what, tensors", kMaxWarnings, [&](const Statement& row) {
    run_.uninspected.push_back({text(row, 0), row.integer(1)});
  });
  std::vector<std::string> recorded;
  // One more for each limit that was reached.
  each("warnings", "text", kMaxWarnings + 8, [&](const Statement& row) { recorded.push_back(text(row, 0)); });
  run_.warnings.insert(run_.warnings.begin(), recorded.begin(), recorded.end());
}

void Reader::check_commits() {
  if (opened_.is_torn) {
    warn("The process died while it moved commits from '" + printable(path_) +
         "-wal' into the file, and the -wal is not there: some of what is shown may be old or damaged.");
    return;
  }
  const std::int64_t missing = opened_.commits_begun - commits_;
  if (missing <= 0 || run_.state == RunState::complete) return;
  warn("The last " + show_count(missing) + (missing == 1 ? " commit" : " commits") +
       " of this run are missing: they were in '" + printable(path_) + "-wal', which is not there or damaged.");
}

Run Reader::read() {
  read_run();
  read_setup();
  read_sites();
  read_steps();
  read_health();
  read_transitions();
  read_facts();
  read_origins();
  read_actions();
  read_texts();
  if (tables_read_ == 0) {
    throw Error("'" + printable(path_) + "' is damaged beyond reading: none of its tables is whole.",
                Error::Kind::unreadable);
  }
  check_commits();
  if (!run_.rows.empty()) run_.steps = std::max(run_.steps, run_.rows.back().step + 1);
  return std::move(run_);
}

}  // namespace

Run read_run(const std::string& path) {
  install_fork_handlers();
  if (sqlite_is_lost()) {
    throw Error("'" + printable(path) +
                "' cannot be read in this process: it was forked while its parent was writing a run file. Start it "
                "with the spawn or forkserver method.");
  }
  const SqliteGate gate;
  return Reader(open_run(path), path).read();
}

}  // namespace firstfault
