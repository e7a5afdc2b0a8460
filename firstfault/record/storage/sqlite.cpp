#include "firstfault/record/storage/sqlite.h"

#include <limits>

namespace firstfault::record {
namespace {

[[noreturn]] void fail(sqlite3* database, int code) {
  const char* text = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  throw SqliteError(code, text != nullptr ? text : "unknown error");
}

}  // namespace

Statement::Statement(sqlite3* database, std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  statement_.reset(statement);
  if (code != SQLITE_OK) fail(database, code);
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) fail(sqlite3_db_handle(get()), code);
}

void Statement::bind(int index, std::int64_t value) { check(sqlite3_bind_int64(get(), index, value)); }

void Statement::bind(int index, double value) { check(sqlite3_bind_double(get(), index, value)); }

void Statement::bind(int index, std::string_view value) {
  // A null pointer would be NULL.
  const char* data = value.data() != nullptr ? value.data() : "";
  check(sqlite3_bind_text64(get(), index, data, value.size(), SQLITE_STATIC, SQLITE_UTF8));
}

void Statement::bind(int index, std::span<const std::byte> value) {
  check(sqlite3_bind_blob64(get(), index, value.data(), value.size(), SQLITE_STATIC));
}

bool Statement::next() {
  const int code = sqlite3_step(get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail(sqlite3_db_handle(get()), code);
  return false;
}

void Statement::finish() {
  const int code = sqlite3_step(get());
  sqlite3_reset(get());
  if (code != SQLITE_DONE && code != SQLITE_ROW) fail(sqlite3_db_handle(get()), code);
}

double Statement::number(int column) const {
  return is_null(column) ? std::numeric_limits<double>::quiet_NaN() : sqlite3_column_double(get(), column);
}

std::string_view Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(get(), column));
  return data == nullptr ? std::string_view()
                         : std::string_view(data, static_cast<std::size_t>(sqlite3_column_bytes(get(), column)));
}

std::span<const std::byte> Statement::blob(int column) const {
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(get(), column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(get(), column))};
}

Database::Database(const std::string& path, int flags, const std::string& vfs) {
  sqlite3* database = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &database, flags | SQLITE_OPEN_NOMUTEX, vfs.empty() ? nullptr : vfs.c_str());
  database_.reset(database);
  if (code != SQLITE_OK) fail(database, code);
  sqlite3_extended_result_codes(database, 1);
}

void Database::execute(const std::string& sql) const {
  const int code = sqlite3_exec(get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(get(), code);
}

std::string Database::query_text(const std::string& sql) const {
  Statement statement(get(), sql);
  return statement.next() ? std::string(statement.text(0)) : std::string();
}

std::int64_t Database::query_integer(const std::string& sql) const {
  Statement statement(get(), sql);
  return statement.next() ? statement.integer(0) : 0;
}

sqlite3_file* Database::main_file() const noexcept {
  sqlite3_file* file = nullptr;
  if (sqlite3_file_control(get(), "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK) return nullptr;
  return file != nullptr && file->pMethods != nullptr ? file : nullptr;
}

}  // namespace firstfault::record
