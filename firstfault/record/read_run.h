// Reads a run file into a Run.
#pragma once

#include <string>

#include "firstfault/record/run.h"

namespace firstfault {

/// Also while it is being written, and where neither file nor folder can be written to (a -wal is then copied to a
/// temporary folder together with the file). What is damaged is left out, and Run::warnings says what; so it does
/// where the -wal is missing. A run whose process is gone without having closed it has state `died`. Throws
/// firstfault::Error, one sentence with the path, for what is no run file or none of which can be read: no such file,
/// no permission, a folder, an empty file, no SQLite database, another program's, a newer firstfault's, damaged.
/// Strings come as they are: use printable() before they reach a terminal. The file is untrusted: memory stays below
/// 1 GB whatever it says. May be called from any thread.
Run read_run(const std::string& path);

}  // namespace firstfault
