// A SQLite VFS over the system's, for tests: a disk that is full, slow or fails, or has no shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <sqlite3.h>

namespace firstfault::record {

/// Registered under `name` while it lives; every file opened through it obeys the settings at the time of the call.
class TestVfs {
 public:
  explicit TestVfs(const char* name) : name_(name), real_(sqlite3_vfs_find(nullptr)) {
    vfs_ = *real_;
    vfs_.zName = name_.c_str();
    vfs_.pAppData = this;
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.xOpen = &TestVfs::open;
    sqlite3_vfs_register(&vfs_, 0);
  }
  ~TestVfs() { sqlite3_vfs_unregister(&vfs_); }
  TestVfs(const TestVfs&) = delete;
  TestVfs& operator=(const TestVfs&) = delete;

  std::atomic<int> write_error{SQLITE_OK};  ///< SQLITE_FULL, SQLITE_IOERR_WRITE
  std::atomic<int> write_milliseconds{0};
  std::atomic<bool> has_shared_memory{true};
  std::atomic<int> writes{0};
  std::atomic<int> kill_at_write{0};  ///< half of that write is done, then the process is killed; 0: never

 private:
  struct File {
    sqlite3_file base;
    TestVfs* owner;
    sqlite3_io_methods methods;
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static File* of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }

  static int open(sqlite3_vfs* vfs, sqlite3_filename path, sqlite3_file* given, int flags, int* out) {
    File* file = of(given);
    auto* owner = static_cast<TestVfs*>(vfs->pAppData);
    file->base.pMethods = nullptr;
    file->owner = owner;
    const int code = owner->real_->xOpen(owner->real_, path, file->real(), flags, out);
    if (file->real()->pMethods == nullptr) return code;
    fill(file->methods);
    file->methods.iVersion = owner->has_shared_memory ? 2 : 1;
    file->base.pMethods = &file->methods;
    return code;
  }

  static int write(sqlite3_file* file, const void* data, int length, sqlite3_int64 at) {
    TestVfs* owner = of(file)->owner;
    if (++owner->writes == owner->kill_at_write) {
      of(file)->real()->pMethods->xWrite(of(file)->real(), data, length / 2, at);
      raise(SIGKILL);
    }
    if (const int wait = owner->write_milliseconds) std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    if (const int error = owner->write_error) return error;
    return of(file)->real()->pMethods->xWrite(of(file)->real(), data, length, at);
  }

  template <auto Method, class... Arguments>
  static int forward(sqlite3_file* file, Arguments... arguments) {
    sqlite3_file* real = of(file)->real();
    return (real->pMethods->*Method)(real, arguments...);
  }

  static void fill(sqlite3_io_methods& methods) {
    using M = sqlite3_io_methods;
    methods.xClose = &forward<&M::xClose>;
    methods.xRead = &forward<&M::xRead, void*, int, sqlite3_int64>;
    methods.xWrite = &write;
    methods.xTruncate = &forward<&M::xTruncate, sqlite3_int64>;
    methods.xSync = &forward<&M::xSync, int>;
    methods.xFileSize = &forward<&M::xFileSize, sqlite3_int64*>;
    methods.xLock = &forward<&M::xLock, int>;
    methods.xUnlock = &forward<&M::xUnlock, int>;
    methods.xCheckReservedLock = &forward<&M::xCheckReservedLock, int*>;
    methods.xFileControl = &forward<&M::xFileControl, int, void*>;
    methods.xSectorSize = &forward<&M::xSectorSize>;
    methods.xDeviceCharacteristics = &forward<&M::xDeviceCharacteristics>;
    methods.xShmMap = &forward<&M::xShmMap, int, int, int, void volatile**>;
    methods.xShmLock = &forward<&M::xShmLock, int, int, int>;
    methods.xShmBarrier = [](sqlite3_file* file) { of(file)->real()->pMethods->xShmBarrier(of(file)->real()); };
    methods.xShmUnmap = &forward<&M::xShmUnmap, int>;
  }

  std::string name_;
  sqlite3_vfs* real_;
  sqlite3_vfs vfs_{};
};

}  // namespace firstfault::record
