#include "firstfault/record/storage/place.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/record/storage/schema.h"

namespace firstfault::record {
namespace {

constexpr std::time_t kSilentSeconds = 300;

std::string quoted(const std::string& path) { return "'" + printable(path) + "'"; }

/// Of a file that is there: whether it is a run file, and then whether somebody is recording it.
void check_what_is_there(const std::string& path) {
  std::int64_t application = 0;
  bool recording = false;
  std::int64_t pid = 0;
  try {
    const Database database(path, SQLITE_OPEN_READONLY);
    application = database.query_integer("PRAGMA application_id");
    if (application == kApplicationId && database.query_text("SELECT state FROM run") == "recording") {
      const ProcessIdentity process = recording_process(database);
      pid = process.pid;
      recording = is_being_recorded(process, path);
    }
  } catch (const SqliteError& error) {
    // Locked: by its recorder. Else one that is damaged, or none at all.
    recording = error.code() == SQLITE_BUSY;
  }
  if (recording) {
    const std::string who = pid > 0 ? "Process " + std::to_string(pid) : "Another process";
    throw Error(who + " is recording the run file " + quoted(path) +
                ". Give each process a name of its own, such as one with its rank.");
  }
  if (application != kApplicationId) {
    throw Error(quoted(path) + " is there already and is no run file, so it is not replaced. Choose another name.");
  }
}

void move_away(const std::string& path) {
  const std::string target = path + ".previous";
  remove_run_file(target);
  if (std::rename(path.c_str(), target.c_str()) != 0) {
    throw Error("The run file " + quoted(path) + " of an earlier run cannot be moved away (" + std::strerror(errno) +
                "). Choose another name.");
  }
  std::rename((path + "-wal").c_str(), (target + "-wal").c_str());
  std::remove((path + "-shm").c_str());
}

}  // namespace

FolderLock::FolderLock(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  folder_ = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int tries = 0; folder_ >= 0 && tries < 200; ++tries) {
    if (flock(folder_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

FolderLock::~FolderLock() {
  if (folder_ >= 0) ::close(folder_);
}

void prepare_place(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) {
    const auto folder = std::filesystem::path(path).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
      throw Error("The run file " + quoted(path) + " cannot be made: there is no folder " + quoted(folder.string()) +
                  ". Make it first.");
    }
    remove_run_file(path);  // a -wal that lost its file
    return;
  }
  if (S_ISDIR(file.st_mode)) throw Error(quoted(path) + " is a folder. Give the run file's own name.");
  if (!S_ISREG(file.st_mode)) throw Error(quoted(path) + " is no regular file. Choose another name for the run file.");
  if (file.st_size == 0) {
    remove_run_file(path);
    return;
  }
  check_what_is_there(path);
  move_away(path);
}

void remove_run_file(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) std::remove((path + suffix).c_str());
}

ProcessIdentity recording_process(const Database& database) {
  Statement query(database.get(), "SELECT host, boot, pid_namespace, pid, process_start FROM run");
  if (!query.next()) return {};
  return {std::string(query.text(0)), std::string(query.text(1)), std::string(query.text(2)), query.integer(3),
          query.integer(4)};
}

bool is_being_recorded(const ProcessIdentity& process, const std::string& path) {
  switch (is_alive(process)) {
    case Alive::yes: return true;
    case Alive::no: return false;
    case Alive::unknown: break;
  }
  std::time_t newest = 0;
  for (const char* suffix : {"", "-wal"}) {
    struct stat file {};
    if (stat((path + suffix).c_str(), &file) == 0) newest = std::max(newest, file.st_mtime);
  }
  return std::time(nullptr) - newest < kSilentSeconds;
}

}  // namespace firstfault::record
