// Reading fields of a JSON file that a run wrote: each missing key, wrong type or value out of
// range is an Error(file) that names file, key, what was expected and what was found.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "runtime/error.h"
#include "runtime/printable.h"

namespace duet {

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
  bool has(const char* key) const { return object_.contains(key); }
  JsonFields object(const char* key) const { return {at(key), path_, prefix_ + key + "."}; }

  std::int64_t integer(const char* key, std::int64_t low,
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) const {
    const nlohmann::json& value = at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high));
    if (!fits || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
      fail(key, value, concat("an integer from ", low, " to ", high));
    }
    return value.get<std::int64_t>();
  }
  std::uint64_t unsigned_integer(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number_unsigned()) fail(key, value, "an integer of 0 or more");
    return value.get<std::uint64_t>();
  }
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
  [[noreturn]] void fail(const char* key, const nlohmann::json& found,
                         const std::string& expected) const {
    throw Error(ErrorKind::file, concat(path_, ": key ", prefix_, key, ": expected ", expected,
                                        ", found ", printable(found.dump())));
  }

 private:
  const nlohmann::json& object_;
  std::string path_, prefix_;
};

// Throws Error(file) naming path and place when `text` is not JSON.
inline nlohmann::json parse_json(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorKind::file, concat(path, ": not JSON: ", printable(e.what(), 200)));
  }
}

}  // namespace duet
