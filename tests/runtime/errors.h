// What an Error says, for tests of messages.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/error.h"

namespace duet::test {

// The message of the Error that f throws; fails the test if it throws none, or one of another kind.
template <class F>
std::string error_of(ErrorKind kind, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

inline void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "missing: " << part << "\nin: " << text;
}

}  // namespace duet::test
