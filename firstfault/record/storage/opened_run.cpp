#include "firstfault/record/storage/opened_run.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/record/storage/schema.h"

namespace firstfault::record {
namespace {

constexpr int kLongestValue = 32 << 20;  ///< bytes; more is damage or malice
constexpr int kStepsOfSqlite = 1000;     ///< between calls of the progress handler
constexpr std::int64_t kMostCalls =
    100'000;  ///< of it: 1e8 steps of SQLite's machine, 100 times what a full file takes

std::string quoted(const std::string& path) { return "'" + printable(path) + "'"; }

/// A file opened by SQLite's own means: closing a plain handle would drop the locks that a RunFile of this process
/// holds on the same file (fcntl(2)).
class VfsFile {
 public:
  explicit VfsFile(const std::string& path)
      : vfs_(sqlite3_vfs_find(nullptr)), name_(sqlite3_create_filename(path.c_str(), "", "", 0, nullptr)) {
    storage_ = std::make_unique<std::byte[]>(static_cast<std::size_t>(vfs_->szOsFile));
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB;
    if (name_ == nullptr || vfs_->xOpen(vfs_, name_, file(), flags, &flags) != SQLITE_OK) return;
    is_open_ = true;
  }
  ~VfsFile() {
    if (file()->pMethods != nullptr) file()->pMethods->xClose(file());
    sqlite3_free_filename(name_);
  }
  VfsFile(const VfsFile&) = delete;
  VfsFile& operator=(const VfsFile&) = delete;

  bool copy_to(const std::string& target) {
    std::ofstream out(target, std::ios::binary);
    sqlite3_int64 size = 0;
    if (!is_open_ || !out || file()->pMethods->xFileSize(file(), &size) != SQLITE_OK) return false;
    std::array<char, 1 << 16> block{};
    for (sqlite3_int64 at = 0; at < size; at += static_cast<sqlite3_int64>(block.size())) {
      const auto length = static_cast<int>(std::min<sqlite3_int64>(size - at, block.size()));
      const int code = file()->pMethods->xRead(file(), block.data(), length, at);
      if (code != SQLITE_OK && code != SQLITE_IOERR_SHORT_READ) return false;
      if (!out.write(block.data(), length)) return false;
    }
    return static_cast<bool>(out.flush());
  }

 private:
  sqlite3_file* file() const { return reinterpret_cast<sqlite3_file*>(storage_.get()); }

  sqlite3_vfs* vfs_;
  sqlite3_filename name_;
  std::unique_ptr<std::byte[]> storage_;  ///< zeroed
  bool is_open_ = false;
};

/// The random numbers at the head of a -wal: they change when it is begun anew.
std::string wal_salt(const std::string& path) {
  std::ifstream file(path + "-wal", std::ios::binary);
  std::array<char, 32> header{};
  file.read(header.data(), header.size());
  return {header.data() + 16, 8};
}

void check_file(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      throw Error("There is no file " + quoted(path) + ".", Error::Kind::no_file);
    throw Error(quoted(path) + " cannot be read: " + std::strerror(errno) + ".", Error::Kind::unreadable);
  }
  if (S_ISDIR(file.st_mode)) throw Error(quoted(path) + " is a folder, not a run file.", Error::Kind::unreadable);
  if (!S_ISREG(file.st_mode)) throw Error(quoted(path) + " is no regular file.", Error::Kind::unreadable);
  if (access(path.c_str(), R_OK) != 0) {
    throw Error(quoted(path) + " cannot be read: " + std::strerror(errno) + ".", Error::Kind::no_permission);
  }
  if (file.st_size == 0) throw Error(quoted(path) + " is empty: no run file.", Error::Kind::unreadable);
}

std::int64_t count_of_commits(const Database& database) {
  std::array<unsigned char, 4> bytes{};
  sqlite3_file* file = database.main_file();
  if (file == nullptr || file->pMethods->xRead(file, bytes.data(), 4, kCommitsOffset) != SQLITE_OK) return 0;
  std::int64_t count = 0;
  for (const unsigned char byte : bytes) count = count << 8 | byte;
  return count;
}

/// A file may hold views, triggers and columns that never end.
void limit_work(const Database& database, std::int64_t& calls) {
  sqlite3_limit(database.get(), SQLITE_LIMIT_LENGTH, kLongestValue);
  for (const int setting :
       {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW}) {
    sqlite3_db_config(database.get(), setting, 0, nullptr);
  }
  const auto count = [](void* data) { return ++*static_cast<std::int64_t*>(data) > kMostCalls ? 1 : 0; };
  sqlite3_progress_handler(database.get(), kStepsOfSqlite, count, &calls);
}

/// "file:" with what has a meaning in URIs escaped. `immutable`: without locks, and without -wal and -shm beside it.
std::string immutable_uri(const std::string& path) {
  std::string uri = "file://";
  for (const char c : std::filesystem::absolute(path).string()) {
    if (c == '%' || c == '?' || c == '#') {
      constexpr char hex[] = "0123456789ABCDEF";
      uri += {'%', hex[c >> 4], hex[c & 15]};
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

/// Returns the flags of the file's version.
std::int64_t check_identity(const Database& database, const std::string& path) {
  const std::int64_t application = database.query_integer("PRAGMA application_id");
  const std::int64_t flags_and_version = database.query_integer("PRAGMA user_version");
  const std::int64_t version = flags_and_version & ~kMovingFlag;
  if (application != kApplicationId) {
    throw Error(quoted(path) + " is a SQLite database of another program, not a run file.", Error::Kind::unreadable);
  }
  if (version > kSchemaVersion) {
    throw Error(quoted(path) + " was written by a newer firstfault (run file version " + std::to_string(version) +
                    ", this one reads up to " + std::to_string(kSchemaVersion) + "): update firstfault.",
                Error::Kind::unreadable);
  }
  return flags_and_version & kMovingFlag;
}

OpenedRun open_database(const std::string& file, const std::string& shown_path) {
  OpenedRun run;
  // Nobody can be writing where there is no -wal, and opening it as it is would leave one.
  const bool alone = access((file + "-wal").c_str(), F_OK) != 0;
  const std::string name = alone ? immutable_uri(file) : std::filesystem::absolute(file).string();
  run.database = Database(name, SQLITE_OPEN_READONLY | (alone ? SQLITE_OPEN_URI : 0));
  run.work = std::make_unique<std::int64_t>(0);
  limit_work(run.database, *run.work);
  sqlite3_busy_timeout(run.database.get(), 100);
  // Reads on where the file is shorter than it says or a part of its schema is damaged; nothing is ever written.
  run.database.execute("PRAGMA writable_schema = ON; PRAGMA cell_size_check = ON");
  run.commits_begun = count_of_commits(run.database);
  run.database.execute("BEGIN");
  run.is_torn = check_identity(run.database, shown_path) != 0 && alone;
  run.has_actions = (run.database.query_integer("PRAGMA user_version") & ~kMovingFlag) >= 2;
  return run;
}

OpenedRun open_copy(const std::string& path, const std::string& why) {
  TemporaryFolder folder = TemporaryFolder::make();
  const std::string target = folder.path() + "/run.ffrun";
  if (folder.path().empty() || !copy_run_file(path, target)) {
    throw Error(quoted(path) + " cannot be read in place (" + why +
                    "), nor copied to a temporary folder: set TMPDIR to one with room for it.",
                Error::Kind::unreadable);
  }
  OpenedRun run = open_database(target, path);
  run.folder = std::move(folder);
  return run;
}

[[noreturn]] void refuse(const std::string& path, const SqliteError& error) {
  const bool foreign = error.code() == SQLITE_NOTADB;
  throw Error(quoted(path) + (foreign ? " is no run file: it is no SQLite database, or its beginning is damaged."
                                      : " is damaged beyond reading (" + std::string(error.what()) + ")."),
              Error::Kind::unreadable);
}

bool is_damage(const SqliteError& error) {
  return error.code() == SQLITE_NOTADB || error.code() == SQLITE_CORRUPT || error.code() == SQLITE_TOOBIG ||
         error.code() == SQLITE_ERROR || error.code() == SQLITE_INTERRUPT;
}

}  // namespace

TemporaryFolder TemporaryFolder::make() {
  TemporaryFolder folder;
  const char* root = std::getenv("TMPDIR");
  std::string name = std::string(root != nullptr && *root != '\0' ? root : "/tmp") + "/firstfault-XXXXXX";
  if (mkdtemp(name.data()) != nullptr) folder.path_ = name;
  return folder;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

bool copy_run_file(const std::string& path, const std::string& target) {
  for (int tries = 0; tries < 5; ++tries) {
    const std::string salt = wal_salt(path);
    if (!VfsFile(path).copy_to(target)) return false;
    // After the main file: what was moved into that meanwhile is still in the -wal, unless it was begun anew.
    std::ifstream wal(path + "-wal", std::ios::binary);
    std::remove((target + "-wal").c_str());
    if (wal) {
      std::ofstream copy(target + "-wal", std::ios::binary);
      if (wal.peek() != std::ifstream::traits_type::eof()) copy << wal.rdbuf();
      if (!copy.flush()) return false;
    }
    if (wal_salt(path) == salt) return true;
  }
  return false;
}

OpenedRun open_run(const std::string& path) {
  check_file(path);
  try {
    try {
      return open_database(path, path);
    } catch (const SqliteError& error) {
      // No place for a -shm (a read-only folder), or a writer without shared memory holds its lock.
      if (is_damage(error)) throw;
      return open_copy(path, error.what());
    }
  } catch (const SqliteError& error) {
    refuse(path, error);
  }
}

}  // namespace firstfault::record
