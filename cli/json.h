// JSON of what the commands write (docs/cli.md): the documents of present/json.h, put together.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/loaded.h"

namespace firstfault::cli {

using Json = nlohmann::ordered_json;

/// {"schema": 1, "type": type}, the head of every document.
Json document(const char* type);

/// A document of present/json.h as a part of another: without its head.
Json part(const std::string& json);

/// One document with two spaces of indent (or on one line) and a newline; bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json, bool one_line = false);

Json or_null(const std::string& text);  ///< "": null
Json measured(double value);            ///< NaN: null; Inf: "inf", "-inf"

Json to_json(const Verdict& verdict);
Json to_json(const Run& run, const Transition& transition);

}  // namespace firstfault::cli
