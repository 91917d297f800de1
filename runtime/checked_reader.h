// CheckedReader: reads a binary input that may be malformed. Nothing is read past the end, nothing
// is allocated that the file's own size does not justify, and every refusal has one form.
//
//   const CheckedReader in(path, "token shard");
//   const auto count = in.number<std::uint64_t>(8, "the token count");
//   if (count > in.bytes_after(16) / 2) {
//     in.fail("the token count", "at byte 8", count, concat("at most ", in.bytes_after(16) / 2));
//   }
//
// Throws Error(file): "<file>: <what> <where>: got ..., expected ...; what to do".
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "runtime/error.h"
#include "runtime/file_system.h"

namespace duet {

static_assert(std::endian::native == std::endian::little,
              "Duet's file formats are little-endian and are read in place");

// a + b and a * b of sizes from a file; nothing when the result is negative or does not fit.
inline std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum < 0) return std::nullopt;
  return sum;
}
inline std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product < 0) return std::nullopt;
  return product;
}

class CheckedReader {
 public:
  // Opens `path`; `format` names what it should be, for messages ("safetensors file").
  CheckedReader(const std::string& path, std::string format);

  std::int64_t size() const { return file_.size(); }
  const std::string& path() const { return file_.path(); }
  // Bytes from `offset` to the end; 0 beyond it.
  std::uint64_t bytes_after(std::int64_t offset) const;

  // The little-endian integer at `offset`.
  template <class T>
  T number(std::int64_t offset, std::string_view what) const {
    static_assert(std::is_integral_v<T>);
    T value{};
    read(offset, &value, sizeof value, what);
    return value;
  }
  void read(std::int64_t offset, void* out, std::int64_t bytes, std::string_view what) const;
  // `bytes` bytes as a string; refuses more than `max_bytes` or more than the file has.
  std::string text(std::int64_t offset, std::uint64_t bytes, std::int64_t max_bytes,
                   std::string_view what) const;

  // `where` is "at byte 8", "in tensor \"x\"", "line 3" or "". Where the file is of another known
  // format, the message says which instead, and how to get at its contents.
  template <class Got, class Expected>
  [[noreturn]] void fail(std::string_view what, std::string_view where, const Got& got,
                         const Expected& expected, std::string_view advice = "") const {
    fail_text(what, where, concat(got), concat(expected), advice);
  }

 private:
  [[noreturn]] void fail_text(std::string_view what, std::string_view where, const std::string& got,
                              const std::string& expected, std::string_view advice) const;

  FileReader file_;
  std::string format_;
};

}  // namespace duet
