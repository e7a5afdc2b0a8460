// show RUN: the state of a run; --follow: until it ends.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/loaded.h"
#include "cli/style.h"
#include "firstfault/base/names.h"
#include "firstfault/base/numbers.h"
#include "firstfault/present/json.h"
#include "firstfault/present/text.h"

namespace firstfault::cli {
namespace {

constexpr auto kRefresh = std::chrono::milliseconds(500);  // how often the recorder commits
constexpr int kReadAnyway = 10;  // refreshes without a write: the process may be gone, which only reading shows
constexpr std::size_t kSitesShown = 20;

struct Arguments {
  std::string path;
  std::int64_t rows = 10;
  bool follow = false;
  bool json = false;
};

/// The last transition of each site that is not healthy now, the earliest first.
std::vector<const Transition*> not_healthy(const Run& run) {
  std::vector<const Transition*> last(run.sites.size(), nullptr);
  for (const Transition& one : run.transitions)
    if (one.site >= 0 && static_cast<std::size_t>(one.site) < last.size())
      last[static_cast<std::size_t>(one.site)] = &one;
  std::erase_if(last, [](const Transition* one) { return !one || one->to == Condition::healthy; });
  std::stable_sort(last.begin(), last.end(), [](auto* a, auto* b) { return a->step < b->step; });
  return last;
}

std::vector<const StepRow*> last_rows(const Run& run, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(run.rows.size());
  std::vector<const StepRow*> rows;
  for (std::int64_t i = std::max<std::int64_t>(0, size - count); i < size; ++i)
    rows.push_back(&run.rows[static_cast<std::size_t>(i)]);
  return rows;
}

std::string loss_cell(const StepRow& row) {
  switch (row.loss_state) {
    case StepRow::Loss::unknown: return "-";
    case StepRow::Loss::nan: return "NaN";
    case StepRow::Loss::inf: return row.loss < 0 ? "-Inf" : "+Inf";
    case StepRow::Loss::finite: break;
  }
  return cell(row.loss);
}

std::string remark(const StepRow& row) {
  std::string text;
  const auto add = [&](const char* what) { text += (text.empty() ? "" : ", ") + std::string(what); };
  if (row.skipped) add("skipped");
  if (row.gradients_left_over) add("added to old gradients");
  if (row.reset_state) add("optimizer state lost");
  return text;
}

std::string rows_text(const Run& run, std::int64_t count) {
  const auto rows = last_rows(run, count);
  if (rows.empty()) return "";
  std::vector<std::vector<std::string>> cells = {
      {"step", "seconds", "loss", "gradient norm", "update/weight", "lr", ""}};
  for (const StepRow* row : rows)
    cells.push_back({show_count(row->step), fmt::format("{:.1f}", row->seconds), loss_cell(*row),
                     cell(row->gradient_norm), cell(row->update_ratio), cell(row->lr), remark(*row)});
  using enum Align;
  return "\n" + table(cells, {right, right, right, right, right, right, left});
}

std::string sites_text(const Run& run, const Style& style) {
  const auto sick = not_healthy(run);
  if (sick.empty()) return "";
  std::string text = fmt::format("\nNot healthy: {} of {}\n", sick.size(),
                                 counted(static_cast<std::int64_t>(run.sites.size()), "site"));
  std::vector<std::vector<std::string>> cells;
  for (const Transition* one : sick) {
    if (cells.size() == kSitesShown) break;
    const Site& site = run.sites[static_cast<std::size_t>(one->site)];
    cells.push_back({present::to_text(site), std::string(name_of(one->to)), "since step " + show_count(one->step),
                     cell(one->value), std::isnan(one->baseline) ? "" : "usually " + cell(one->baseline)});
  }
  using enum Align;
  text += style.yellow(table(cells, {left, left, left, right, left}));
  return sick.size() <= kSitesShown ? text : text + fmt::format("  and {} more\n", sick.size() - kSitesShown);
}

std::string actions_text(const Run& run, const Style& style) {
  std::string text;
  for (const std::string& one : present::actions_text(run)) text += "  " + one + "\n";
  return text.empty() ? "" : "\nWhat the guard did\n" + style.yellow(text);
}

std::string program_text(const Setup& setup) {
  std::string text;
  for (const std::string& word : setup.command) text += (text.empty() ? "" : " ") + printable(word);
  if (text.empty()) return "";
  return fmt::format("  program  {}\n  started  {} on {}, in {}\n", text, printable(setup.started),
                     printable(setup.host), printable(setup.directory));
}

std::string warnings_text(const Run& run, const Style& style) {
  std::string text;
  for (const Uninspected& missed : run.uninspected)
    text += fmt::format("Not inspected: {}, {}.\n", printable(missed.what), counted(missed.tensors, "tensor"));
  for (const std::string& warning : run.warnings)
    text += style.yellow("Note on the recording:") + " " + printable(warning) + "\n";
  return text.empty() ? "" : "\n" + text;
}

std::string text_of(const Loaded& loaded, const Arguments& arguments, const Style& style) {
  const Run& run = loaded.run;
  const bool fault = loaded.verdict.kind == Verdict::Kind::fault;
  const std::string verdict = to_text(loaded.verdict);
  std::string text =
      fmt::format("{}: {}, {}, {}\n", style.bold(printable(loaded.path)), name_of(run.state),
                  counted(run.steps, "step"), counted(static_cast<std::int64_t>(run.transitions.size()), "event"));
  text += program_text(run.setup);
  text += fmt::format("  verdict  {}\n", fault ? style.red(verdict) : style.green(verdict));
  if (fault) text += fmt::format("           more: firstfault explain {}\n", printable(loaded.path));
  return text + rows_text(run, arguments.rows) + sites_text(run, style) + actions_text(run, style) +
         warnings_text(run, style);
}

Json json_of(const Loaded& loaded, const Arguments& arguments) {
  const Run& run = loaded.run;
  Json json = document("show");
  json["file"] = loaded.path;
  json["state"] = name_of(run.state);
  json["steps"] = run.steps;
  json["events"] = run.transitions.size();
  json["verdict"] = to_json(loaded.verdict);
  json["setup"] = part(present::to_json(run.setup));
  json["rows"] = Json::array();
  for (const StepRow* row : last_rows(run, arguments.rows)) json["rows"].push_back(part(present::to_json(*row)));
  json["not_healthy"] = Json::array();
  for (const Transition* one : not_healthy(run)) json["not_healthy"].push_back(to_json(run, *one));
  json["actions"] = Json::array();
  for (const GuardAction& one : run.actions) json["actions"].push_back(part(present::to_json(one)));
  json["uninspected"] = Json::array();
  for (const Uninspected& one : run.uninspected)
    json["uninspected"].push_back({{"what", one.what}, {"tensors", one.tensors}});
  json["warnings"] = run.warnings;
  return json;
}

/// Changes whenever the recorder has written something.
std::string fingerprint(const std::string& path) {
  std::string print;
  for (const std::string& file : {path, path + "-wal"}) {
    struct stat status {};
    if (stat(file.c_str(), &status) == 0)
      print += fmt::format("{} {} {} ", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return print;
}

/// Off a terminal: the head once, then each new step.
class Log {
 public:
  explicit Log(const Context& context) : context_(context) {}

  void draw(const Loaded& loaded) {
    for (const StepRow& row : loaded.run.rows) {
      if (row.step <= last_) continue;
      context_.out << fmt::format("step {}  loss {}  gradient norm {}  lr {}\n", row.step, loss_cell(row),
                                  cell(row.gradient_norm), cell(row.lr));
      last_ = row.step;
    }
    if (const std::string verdict = to_text(loaded.verdict); verdict != verdict_) context_.out << verdict << "\n";
    verdict_ = to_text(loaded.verdict);
    context_.out << std::flush;
  }

 private:
  const Context& context_;
  std::int64_t last_ = -1;
  std::string verdict_;
};

int follow(const Arguments& arguments, const Context& context) {
  Log log(context);
  std::string seen;
  for (int waited = 0;; std::this_thread::sleep_for(kRefresh)) {
    const std::string now = fingerprint(arguments.path);
    if (now == seen && !now.empty() && ++waited < kReadAnyway) continue;
    seen = now;
    waited = 0;
    const Loaded loaded = load(arguments.path);
    if (arguments.json)
      context.out << dump(json_of(loaded, arguments), true) << std::flush;
    else if (context.terminal)
      context.out << "\x1b[H\x1b[J" << text_of(loaded, arguments, Style(context.colour)) << std::flush;
    else
      log.draw(loaded);
    if (loaded.run.state != RunState::recording || !context.out.good()) return kDone;
  }
}

int show(const Arguments& arguments, const Context& context) {
  if (arguments.follow) return follow(arguments, context);
  const Loaded loaded = load(arguments.path);
  context.out << (arguments.json ? dump(json_of(loaded, arguments))
                                 : text_of(loaded, arguments, Style(context.colour)));
  return kDone;
}

}  // namespace

Action declare_show(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.positional(arguments->path, {"RUN", "run file"});
  options.count(arguments->rows, {"-n,--rows", "last steps to show"});
  options.flag(arguments->follow, {"-f,--follow", "again and again until the run ends"});
  options.flag(arguments->json, {"--json", "as JSON; with --follow one line each time"});
  return [arguments](const Context& context) { return show(*arguments, context); };
}

}  // namespace firstfault::cli
