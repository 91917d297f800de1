// Reading fields of a JSON file that a run wrote: each missing key, wrong type or value out of
// range is an Error(file) that names file, key, what was expected and what was found. No integer is
// read without an upper bound, so that sums of a few of them fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "runtime/error.h"
#include "runtime/file_error.h"
#include "runtime/printable.h"
#include "train/json_text.h"

namespace duet {

// Above what any run counts, and exact in every reader of JSON.
inline constexpr std::int64_t kMostCount = std::int64_t{1} << 53;
inline constexpr std::int64_t kMostSteps = 4'294'967'295;  // the upper end of max_iters

// The number at `key` of a line of a log, or nothing for what no run writes there.
template <class Json>
std::optional<std::int64_t> count_at(const Json& line, const char* key) {
  const auto found = line.is_object() ? line.find(key) : line.end();
  if (found == line.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto value = found->template get<std::uint64_t>();
  if (value > static_cast<std::uint64_t>(kMostCount)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

class JsonFields {
 public:
  // `path` and `prefix` ("optimizer.") are for messages; the object must outlive this.
  JsonFields(const nlohmann::json& object, std::string path, std::string prefix = "")
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {
    check(object.is_object(), ErrorKind::file, path_, ": expected an object",
          prefix_.empty() ? "" : " at ", prefix_, "; the file is damaged");
  }

  const nlohmann::json& at(const char* key) const {
    const auto found = object_.find(key);
    check(found != object_.end(), ErrorKind::file, path_, ": key ", prefix_, key, " is missing");
    return *found;
  }
  auto items() const { return object_.items(); }
  bool has(const char* key) const { return object_.contains(key); }
  JsonFields object(const char* key) const { return {at(key), path_, prefix_ + key + "."}; }

  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high = kMostCount) const {
    const nlohmann::json& value = at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high));
    if (!fits || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
      fail(key, value, concat("an integer from ", low, " to ", high));
    }
    return value.get<std::int64_t>();
  }
  std::uint64_t seed(const char* key) const {  // any of 64 bits; nothing is computed from it
    const nlohmann::json& value = at(key);
    if (!value.is_number_unsigned()) fail(key, value, "an integer of 0 or more");
    return value.get<std::uint64_t>();
  }
  std::uint64_t bytes(const char* key) const { return static_cast<std::uint64_t>(integer(key, 0)); }
  // In [low, high); the bounds themselves are given by the caller.
  double number(const char* key, double low = std::numeric_limits<double>::lowest(),
                double high = std::numeric_limits<double>::infinity()) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() < high)) {
      fail(key, value, concat("a number of at least ", low, " and below ", high));
    }
    return value.get<double>();
  }
  bool boolean(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_boolean()) fail(key, value, "true or false");
    return value.get<bool>();
  }
  std::string text(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) fail(key, value, "a string");
    return value.get<std::string>();
  }
  // Text that stands in names of files.
  std::string word(const char* key) const {
    std::string value = text(key);
    const auto fits = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_';
    };
    if (value.empty() || value.size() > 64 || !std::all_of(value.begin(), value.end(), fits)) {
      fail(key, at(key), "1 to 64 letters, digits, - and _");
    }
    return value;
  }
  // Throws UnreadableError for a format that a later version of the program writes.
  void check_version(std::int64_t known) const {
    const std::int64_t version = integer("format_version", 1);
    if (version <= known) return;
    throw UnreadableError(
        ErrorKind::file,
        concat(path_, ": cannot be read by this version of duet: format version ", version,
               " is newer than this program's ", known, "; use a newer duet"));
  }
  [[noreturn]] void fail(const char* key, const nlohmann::json& found,
                         const std::string& expected) const {
    throw Error(ErrorKind::file, concat(path_, ": key ", prefix_, key, ": expected ", expected,
                                        ", found ", printable(found.dump())));
  }

 private:
  const nlohmann::json& object_;
  std::string path_, prefix_;
};

}  // namespace duet
