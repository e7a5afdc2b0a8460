// What kind of file `run` was given, and whether a library can be preloaded into it.
#pragma once

#include <string>

namespace firstfault::cli {

struct ProgramFile {
  std::string path;          ///< found along PATH where the name has no slash; "": there is no such program
  bool python = false;       ///< a Python script, by its name or its first line
  bool interpreter = false;  ///< a Python interpreter itself
  std::string unwatchable;   ///< why nothing can be preloaded into it; "": nothing speaks against it
};

/// Looks at name, mode and headers of the file. Never throws: what cannot be read has no objection.
ProgramFile inspect(const std::string& name);

}  // namespace firstfault::cli
