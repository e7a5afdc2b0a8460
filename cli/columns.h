// A run's numbers as flat tables: what `export` writes, the same columns in every format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "firstfault/record/run.h"

namespace firstfault::cli {

/// monostate: not measured. Text is as the run file has it: not printable() yet. A double may be NaN or Inf, which was
/// then measured.
using Cell = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct Table {
  std::vector<std::string> columns;
  std::vector<std::string> types;  ///< of each column: "bool", "integer", "number", "text"
  /// Calls back with one row after the other; the row is valid during the call only.
  std::function<void(const std::function<void(const std::vector<Cell>&)>&)> rows;
};

/// `what` is "steps" (with a column "logged NAME" for each name that the program logged), "sites" (one row per step and
/// site that was measured) or "events". `run` must outlive the table.
Table table_of(const Run& run, const std::string& what);

}  // namespace firstfault::cli
