#include "firstfault/record/storage/writer.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include <sys/stat.h>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/record/storage/json.h"
#include "firstfault/record/storage/names.h"
#include "firstfault/record/storage/place.h"
#include "firstfault/record/storage/process.h"
#include "firstfault/record/storage/schema.h"

namespace firstfault::record {
namespace {

/// Rolls back unless it was committed.
class Transaction {
 public:
  explicit Transaction(const Database& database) : database_(database) { database_.execute("BEGIN IMMEDIATE"); }
  ~Transaction() {
    // After some errors SQLite has rolled back by itself.
    if (sqlite3_get_autocommit(database_.get()) == 0) {
      sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    }
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() { database_.execute("COMMIT"); }

 private:
  const Database& database_;
};

void mark_first_page(const Database& database) {
  database.execute("PRAGMA user_version = " + std::to_string(kSchemaVersion + kMovingFlag));
}

std::string why(const Database& database, const SqliteError& error) {
  const int number = database.get() != nullptr ? sqlite3_system_errno(database.get()) : 0;
  return number != 0 ? std::strerror(number) : error.what();
}

}  // namespace

struct Writer::Statements {
  explicit Statements(sqlite3* db)
      : run(db, "UPDATE run SET commits = ?, steps = ?, ops = ?, rows = ?"),
        setup(db, "INSERT OR REPLACE INTO setup VALUES (1, ?)"),
        module(db, "INSERT INTO modules VALUES (?, ?, ?, ?)"),
        site(db, "INSERT INTO sites VALUES (?, ?, ?, ?, ?, ?, ?, ?)"),
        lose_health(db, "DELETE FROM health WHERE step = ?"),
        lose_step(db, "DELETE FROM steps WHERE step = ?"),
        step(db, "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        health(db, "INSERT OR REPLACE INTO health VALUES (?, ?)"),
        transition(db, "INSERT INTO transitions VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"),
        fact(db, "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        origin(db, "INSERT INTO origins VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"),
        action(db, "INSERT INTO actions VALUES (NULL, ?, ?, ?, ?, ?)"),
        warning(db, "INSERT INTO warnings VALUES (NULL, ?)"),
        uninspected(db, "INSERT INTO uninspected VALUES (?, ?)"),
        totals(db, "INSERT OR REPLACE INTO site_totals VALUES (?, ?, ?, ?, ?, ?, ?, ?)") {}

  void write_setup(const Database& database, const Setup& given);
  void write_sites(const Batch& batch);
  void write_rows(const Batch& batch);
  void write_events(const Batch& batch);
  void write_totals(const std::vector<SiteTotals>& all);

  Statement run, setup, module, site, lose_health, lose_step, step, health, transition, fact, origin, action, warning,
      uninspected, totals;
};

void Writer::Statements::write_setup(const Database& database, const Setup& given) {
  setup.run(to_json(given));
  database.execute("DELETE FROM modules");
  std::int64_t id = 0;
  for (const ModuleInfo& info : given.modules) module.run(id++, info.path, info.type, info.parameters);
}

void Writer::Statements::write_sites(const Batch& batch) {
  std::int64_t id = batch.first_site;
  for (const Site& given : batch.sites) {
    site.run(id++, stored_name(given.role), given.module, given.name, given.op, given.dtype, to_json(given.shape),
             given.order);
  }
}

void Writer::Statements::write_rows(const Batch& batch) {
  for (const std::int64_t lost : batch.lost.sites) lose_health.run(lost);
  for (const std::int64_t lost : batch.lost.rows) {
    lose_health.run(lost);
    lose_step.run(lost);
  }
  for (const auto& [number, row] : batch.rows) {
    step.run(number, row.seconds, row.loss, stored_name(row.loss_state), row.gradient_norm, row.update_ratio,
             row.parameter_norm, row.lr, row.loss_scale, row.backwards, row.gradients_left_over, row.skipped,
             row.reset_state, row.optimizer, to_json(row.logged));
    if (!row.sites.empty()) health.run(number, std::as_bytes(std::span(row.sites)));
  }
}

void Writer::Statements::write_events(const Batch& batch) {
  for (const Transition& event : batch.transitions) {
    transition.run(event.step, event.site, stored_name(event.from), stored_name(event.to), event.value, event.baseline,
                   event.confidence);
  }
  for (const auto& [id, given] : batch.facts) {
    fact.run(id, stored_name(given.kind), given.module, given.op, given.detail, given.first_step, given.last_step,
             given.count, to_json(given.numbers), given.file, given.line);
  }
  for (const Origin& given : batch.origins) {
    origin.run(given.step, stored_name(given.phase), given.op, given.module, given.param, stored_name(given.outcome),
               to_json(given));
  }
  for (const GuardAction& given : batch.actions) {
    action.run(given.step, stored_name(given.kind), given.fault, given.reason, to_json(given));
  }
  for (const std::string& text : batch.warnings) warning.run(text);
}

void Writer::Statements::write_totals(const std::vector<SiteTotals>& all) {
  std::int64_t id = 0;
  for (const SiteTotals& one : all) {
    totals.run(id++, one.steps, one.nonfinite_steps, one.first_nonfinite_step, static_cast<double>(one.rms_last),
               static_cast<double>(one.rms_min), static_cast<double>(one.rms_max), one.rms_max_step);
  }
}

Writer::Writer(const std::string& path, const WriterOptions& options) : path_(path), options_(options) {
  const FolderLock lock(path);
  prepare_place(path);
  try {
    try {
      open(false);
    } catch (const SqliteError&) {
      // No shared memory, as on network file systems: the index of the -wal is then kept in this process's own.
      statements_.reset();
      database_.close();
      remove_run_file(path);
      open(true);
    }
  } catch (const SqliteError& error) {
    const std::string reason = why(database_, error);
    statements_.reset();
    database_.close();
    remove_run_file(path);
    throw Error("The run file '" + printable(path) + "' cannot be made (" + reason +
                "). Choose another folder, or keep the run in memory only.");
  }
}

Writer::~Writer() = default;

void Writer::open(bool exclusive) {
  database_ = Database(path_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, options_.vfs);
  sqlite3_busy_timeout(database_.get(), 200);
  database_.execute("PRAGMA page_size = " + std::to_string(kPageSize));
  if (exclusive) database_.execute("PRAGMA locking_mode = EXCLUSIVE");
  if (database_.query_text("PRAGMA journal_mode = WAL") != "wal")
    throw SqliteError(SQLITE_CANTOPEN, "no write-ahead log");
  database_.execute(
      "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -4000; "
      "PRAGMA journal_size_limit = 16000000; PRAGMA max_page_count = " +
      std::to_string(options_.max_bytes / 4 * 3 / kPageSize));
  create_schema();
  statements_ = std::make_unique<Statements>(database_.get());
  checkpoint();
  struct stat file {};
  if (stat(path_.c_str(), &file) != 0) throw SqliteError(SQLITE_CANTOPEN, "it was removed at once");
  device_ = file.st_dev;
  inode_ = file.st_ino;
}

void Writer::create_schema() {
  const ProcessIdentity process = current_process();
  Transaction transaction(database_);
  database_.execute(kSchema);
  database_.execute("PRAGMA application_id = " + std::to_string(kApplicationId));
  mark_first_page(database_);
  commits_ = 1;
  Statement(database_.get(), "INSERT INTO run VALUES (1, ?, ?, 0, 0, 0, ?, ?, ?, ?, ?)")
      .run(stored_name(RunState::recording), commits_, process.host, process.boot, process.pid_namespace, process.pid,
           process.start);
  transaction.commit();
}

void Writer::commit(const Batch& batch) {
  make_room_in_wal();
  Transaction transaction(database_);
  if (batch.setup) statements_->write_setup(database_, *batch.setup);
  statements_->write_sites(batch);
  statements_->write_rows(batch);
  statements_->write_events(batch);
  if (batch.uninspected) {
    database_.execute("DELETE FROM uninspected");
    for (const Uninspected& one : *batch.uninspected) statements_->uninspected.run(one.what, one.tensors);
  }
  statements_->write_totals(batch.totals);
  statements_->run.run(commits_ + 1, batch.steps, batch.ops, batch.rows_seen);
  mark_first_page(database_);
  sqlite3_wal_hook(
      database_.get(),
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<Writer*>(self)->wal_pages_ = pages;
        return SQLITE_OK;
      },
      this);
  transaction.commit();
  ++commits_;
  write_to_head(kCommitsOffset, commits_);
}

void Writer::make_room_in_wal() {
  const std::int64_t most = options_.max_bytes / kPageSize;
  if (wal_pages_ > most / 8) checkpoint();
  if (wal_pages_ > most / 4) throw SqliteError(SQLITE_BUSY, "a reader has kept the -wal in use for long");
}

void Writer::checkpoint() {
  write_to_head(kVersionOffset, kSchemaVersion + kMovingFlag);
  int in_wal = 0;
  int moved = 0;
  const int code = sqlite3_wal_checkpoint_v2(database_.get(), "main", SQLITE_CHECKPOINT_PASSIVE, &in_wal, &moved);
  if (code != SQLITE_OK && code != SQLITE_BUSY) throw SqliteError(code, sqlite3_errmsg(database_.get()));
  const bool all = code == SQLITE_OK && in_wal == moved;
  wal_pages_ = all ? 0 : in_wal;
  write_to_head(kCommitsOffset, commits_);  // the first page came without it
  if (all) write_to_head(kVersionOffset, kSchemaVersion);
}

void Writer::finish(RunState state) {
  {
    Transaction transaction(database_);
    Statement(database_.get(), "UPDATE run SET state = ?, commits = ?").run(stored_name(state), commits_ + 1);
    mark_first_page(database_);
    transaction.commit();
  }
  ++commits_;
  checkpoint();
  statements_.reset();
  // A database without -wal can be read in place in a read-only folder. With a reader at it, it stays as it is.
  database_.execute("PRAGMA user_version = " + std::to_string(kSchemaVersion));
  sqlite3_exec(database_.get(), "PRAGMA journal_mode = DELETE", nullptr, nullptr, nullptr);
  write_to_head(kCommitsOffset, commits_);
  database_.close();
}

bool Writer::in_place() const {
  struct stat file {};
  return stat(path_.c_str(), &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

bool Writer::is_at_limit() const {
  try {
    return database_.query_integer("PRAGMA page_count") * 4 / 3 >= options_.max_bytes / kPageSize - 64;
  } catch (const SqliteError&) {
    return false;
  }
}

void Writer::write_to_head(int offset, std::int64_t value) noexcept {
  sqlite3_file* file = database_.get() != nullptr ? database_.main_file() : nullptr;
  if (file == nullptr) return;
  // Through SQLite's own handle: closing another one of this process would drop SQLite's locks (fcntl(2)).
  std::array<unsigned char, 4> bytes{};
  for (int i = 0; i < 4; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<unsigned char>(value >> (24 - 8 * i));
  file->pMethods->xWrite(file, bytes.data(), static_cast<int>(bytes.size()), offset);
}

void Writer::abandon() noexcept {
  if (database_.get() == nullptr) return;
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  statements_.reset();
  database_.close();
}

}  // namespace firstfault::record
