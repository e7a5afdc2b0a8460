// Parses the command line with CLI11 and runs the command; the only file that includes CLI11, which takes ten seconds.
#include <exception>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "firstfault/base/names.h"

namespace firstfault::cli {
namespace {

class Cli11Options final : public Options {
 public:
  explicit Cli11Options(CLI::App& app) : app_(app) {}

  void positional(std::string& into, Names names) override {
    app_.add_option(names.names, into, names.help)->required();
  }
  void text(std::string& into, Names names) override { app_.add_option(names.names, into, names.help); }
  void choice(std::string& into, Names names, std::vector<std::string> of) override {
    app_.add_option(names.names, into, names.help)->check(CLI::IsMember(std::move(of)))->capture_default_str();
  }
  void count(std::int64_t& into, Names names) override {
    app_.add_option(names.names, into, names.help)->check(CLI::NonNegativeNumber)->capture_default_str();
  }
  void fraction(double& into, Names names) override {
    app_.add_option(names.names, into, names.help)->check(CLI::NonNegativeNumber)->capture_default_str();
  }
  void flag(bool& into, Names names) override { app_.add_flag(names.names, into, names.help); }
  void rest(std::vector<std::string>& into) override {
    app_.prefix_command();
    app_.footer("Then the command itself, with its arguments: script.py, -m module, or ./program.");
    rest_ = &into;
  }

  /// After the parsing.
  void take_rest() {
    if (rest_) *rest_ = app_.remaining();
  }

 private:
  CLI::App& app_;
  std::vector<std::string>* rest_ = nullptr;
};

struct Declared {
  CLI::App* app;
  std::unique_ptr<Cli11Options> options;
  Action action;
};

std::vector<Declared> declare_all(CLI::App& app) {
  std::vector<Declared> all;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    auto options = std::make_unique<Cli11Options>(*sub);
    Action action = command.declare(*options);
    all.push_back({sub, std::move(options), std::move(action)});
  }
  return all;
}

/// Of `run [OPTIONS] -- program` leaves out the --, which CLI11 does not know before a prefix command.
std::vector<std::string> without_marker(const CLI::App& app, std::vector<std::string> words) {
  if (words.empty() || words.front() != "run") return words;
  const CLI::App* run = app.get_subcommand("run");
  for (std::size_t i = 1; i < words.size() && words[i].rfind('-', 0) == 0; ++i) {
    if (words[i] == "--") {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    const CLI::Option* option = run->get_option_no_throw(words[i]);
    if (option && option->get_items_expected_min() > 0) ++i;  // its value
  }
  return words;
}

int parse_and_run(const std::vector<std::string>& arguments, const Context& context) {
  CLI::App app{"What went wrong first in a training run, and why.", "firstfault"};
  app.footer("Exit codes: 0 done, or healthy; 1 a fault, or a difference; 2 a file or command that cannot be used.");
  app.set_version_flag("--version", "firstfault " FIRSTFAULT_VERSION);
  app.require_subcommand(1);
  std::vector<Declared> all = declare_all(app);
  try {
    const auto words = without_marker(app, arguments);
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, context.out, context.err);
    return code == 0 ? kDone : kUnusable;
  }
  for (Declared& command : all) {
    if (!command.app->parsed()) continue;
    command.options->take_rest();
    return command.action(context);
  }
  return kUnusable;
}

}  // namespace

int run_program(const std::vector<std::string>& arguments, const Context& context) {
  try {
    const int code = parse_and_run(arguments, context);
    context.out.flush();
    return code;
  } catch (const std::exception& error) {
    context.out.flush();
    context.err << "firstfault: " << printable(error.what()) << std::endl;
    return kUnusable;
  }
}

}  // namespace firstfault::cli
