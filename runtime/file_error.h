// One text for every failed system call on a file.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "runtime/error.h"

namespace duet {

// The disk or a quota is full: removing something may help.
class NoRoomError : public Error {
 public:
  using Error::Error;
};

// Throws Error(kind, "<path>: cannot <action>: got <system's text> (errno N), expected <expected>;
// <what to do about that errno>").
[[noreturn]] void throw_file_error(ErrorKind kind, const std::string& path, std::string_view action,
                                   int error, std::string_view expected = "it to succeed");

// Calls f until it is not interrupted by a signal.
template <class F>
auto retry_interrupted(F&& f) {
  while (true) {
    const auto result = f();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace duet
