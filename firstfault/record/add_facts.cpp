#include "firstfault/record/add_facts.h"

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/record/read_run.h"
#include "firstfault/record/storage/fork_guard.h"
#include "firstfault/record/storage/json.h"
#include "firstfault/record/storage/names.h"
#include "firstfault/record/storage/place.h"
#include "firstfault/record/storage/sqlite.h"

namespace firstfault {

using namespace record;

void add_facts(const std::string& path, const std::vector<Fact>& facts) {
  if (read_run(path).state == RunState::recording) {
    throw Error("'" + printable(path) + "' is still being recorded.", Error::Kind::unreadable);
  }
  if (facts.empty()) return;
  const SqliteGate gate;
  try {
    Database database(path, SQLITE_OPEN_READWRITE);
    database.execute("BEGIN IMMEDIATE");
    std::int64_t id = database.query_integer("SELECT coalesce(max(id), -1) FROM facts");
    {
      Statement insert(database.get(), "INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
      for (const Fact& one : facts) {
        insert.run(++id, stored_name(one.kind), one.module, one.op, one.detail, one.first_step, one.last_step,
                   one.count, to_json(one.numbers), one.file, one.line);
      }
    }
    database.execute("COMMIT");  // else closing rolls it back
  } catch (const SqliteError& error) {
    throw Error("'" + printable(path) + "' cannot be written to: " + error.what() + ".", Error::Kind::no_permission);
  }
}

}  // namespace firstfault
