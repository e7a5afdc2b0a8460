// export RUN: the numbers of a run as csv or json; parquet is left to the Python package.
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>

#include "cli/columns.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/loaded.h"
#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/record/read_run.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  std::string path;
  std::string format = "csv";
  std::string what = "steps";
  std::string file;
  bool json = false;
};

/// As few digits as read back to the same number; "nan", "inf", "-inf".
std::string shortest(double value) {
  if (std::isnan(value)) return "nan";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return {digits, end};
}

/// As RFC 4180 has it; lines end in \n.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

struct AsCsv {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return shortest(value); }
  std::string operator()(const std::string& value) const { return quoted(printable(value)); }
};

struct AsJson {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const { return std::isnan(value) ? Json("nan") : measured(value); }
  Json operator()(const std::string& value) const { return value; }
};

void write_csv(const Table& table, std::ostream& out) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) out << (i ? "," : "") << quoted(printable(table.columns[i]));
  out << "\n";
  table.rows([&](const std::vector<Cell>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) out << (i ? "," : "") << std::visit(AsCsv{}, row[i]);
    out << "\n";
  });
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Row by row: a long run has millions.
void write_json(const Table& table, const std::string& what, std::ostream& out) {
  std::string head = dump(document("export"), true);
  head.erase(head.find_last_of('}'));
  out << head << ",\"what\":\"" << what << "\",\"columns\":" << text_of(table.columns)
      << ",\"types\":" << text_of(table.types) << ",\"rows\":[";
  const char* separator = "\n";
  table.rows([&](const std::vector<Cell>& row) {
    Json values = Json::array();
    for (const Cell& cell : row) values.push_back(std::visit(AsJson{}, cell));
    out << separator << text_of(values);
    separator = ",\n";
  });
  out << "\n]}\n";
}

void write(const Arguments& arguments, const Run& run, std::ostream& out) {
  const Table table = table_of(run, arguments.what);
  arguments.json || arguments.format == "json" ? write_json(table, arguments.what, out) : write_csv(table, out);
}

void write_file(const Arguments& arguments, const Run& run) {
  std::ofstream file(arguments.file, std::ios::binary);
  if (file) write(arguments, run, file);
  file.close();
  if (!file) throw Error("cannot write " + arguments.file + ": " + std::strerror(errno) + ".");
}

int export_run(const Arguments& arguments, const Context& context) {
  if (arguments.format == "parquet")
    throw Error(
        "parquet is written by the Python package's program, with pyarrow: pip install firstfault pyarrow, then "
        "python -m firstfault export RUN --format parquet --out FILE. Here csv and json are at hand.");
  const Run run = read_run(arguments.path);
  arguments.file.empty() ? write(arguments, run, context.out) : write_file(arguments, run);
  write_warnings(run, context);
  return kDone;
}

}  // namespace

Action declare_export(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.positional(arguments->path, {"RUN", "run file"});
  options.choice(arguments->format, {"--format", "of the output"}, {"csv", "json", "parquet"});
  options.choice(arguments->what, {"--what", "steps, sites (one line per step and site) or events"},
                 {"steps", "sites", "events"});
  options.text(arguments->file, {"-o,--out", "file to write; standard output without it"});
  options.flag(arguments->json, {"--json", "the same as --format json"});
  return [arguments](const Context& context) { return export_run(*arguments, context); };
}

}  // namespace firstfault::cli
