// The part of SQLite's C interface that the run file needs, with errors as exceptions and handles that close
// themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <sqlite3.h>

namespace firstfault::record {

class SqliteError : public std::runtime_error {
 public:
  SqliteError(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
  int code() const noexcept { return code_ & 0xFF; }  ///< SQLITE_FULL, SQLITE_IOERR …
  int extended_code() const noexcept { return code_; }

 private:
  int code_;
};

/// A prepared statement. Texts and blobs given to run() are not copied: they must live until it returns.
class Statement {
 public:
  Statement() = default;
  Statement(sqlite3* database, std::string_view sql);

  /// Binds all parameters, in order, and runs a statement that gives no rows.
  template <class... Values>
  void run(const Values&... values) {
    int index = 0;
    (bind(++index, values), ...);
    finish();
  }

  void bind(int index, std::int64_t value);
  void bind(int index, int value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, bool value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, double value);  ///< NaN becomes NULL
  void bind(int index, std::string_view value);
  void bind(int index, const char* value) { bind(index, std::string_view(value)); }
  void bind(int index, const std::string& value) { bind(index, std::string_view(value)); }
  void bind(int index, std::span<const std::byte> value);

  bool next();  ///< to the next row; false: there is none
  bool is_null(int column) const { return sqlite3_column_type(get(), column) == SQLITE_NULL; }
  std::int64_t integer(int column) const { return sqlite3_column_int64(get(), column); }
  double number(int column) const;  ///< NULL gives NaN
  std::string_view text(int column) const;
  std::span<const std::byte> blob(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
  };
  sqlite3_stmt* get() const noexcept { return statement_.get(); }
  void check(int code) const;
  void finish();

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
 public:
  Database() = default;
  /// `flags` and `vfs` as for sqlite3_open_v2; vfs "" is the system's.
  Database(const std::string& path, int flags, const std::string& vfs = {});

  void execute(const std::string& sql) const;
  std::string query_text(const std::string& sql) const;  ///< first column of the first row; "" for none
  std::int64_t query_integer(const std::string& sql) const;
  sqlite3* get() const noexcept { return database_.get(); }
  sqlite3_file* main_file() const noexcept;  ///< the open main file; nullptr where the VFS has none
  void close() noexcept { database_.reset(); }

 private:
  struct Close {
    void operator()(sqlite3* database) const noexcept { sqlite3_close_v2(database); }
  };
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace firstfault::record
