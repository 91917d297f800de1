// Whole files compared: a failure names the first difference instead of printing both.
//   EXPECT_TRUE(same_text(read_bytes(copy), read_bytes(original)));
//   EXPECT_TRUE(same_files(snapshot(directory), before));
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace duet::test {

inline testing::AssertionResult same_text(std::string_view got, std::string_view expected) {
  if (got == expected) return testing::AssertionSuccess();
  const auto parts = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
  const auto at = static_cast<std::size_t>(parts.first - got.begin());
  const auto there = [&](std::string_view text) {
    return testing::PrintToString(std::string(text.substr(at - std::min<std::size_t>(at, 20), 60)));
  };
  return testing::AssertionFailure()
         << "they differ at byte " << at << ": got " << got.size() << " bytes, there " << there(got)
         << ", expected " << expected.size() << " bytes, there " << there(expected);
}

using Files = std::map<std::string, std::string>;  // path -> bytes, of snapshot()

inline testing::AssertionResult same_files(const Files& got, const Files& expected) {
  for (const auto& [path, bytes] : expected) {
    const auto found = got.find(path);
    if (found == got.end()) return testing::AssertionFailure() << path << " is gone";
    const testing::AssertionResult same = same_text(found->second, bytes);
    if (!same) return testing::AssertionFailure() << path << ": " << same.message();
  }
  for (const auto& [path, bytes] : got) {
    if (!expected.contains(path)) {
      return testing::AssertionFailure() << path << " is new: " << bytes.size() << " bytes";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace duet::test
