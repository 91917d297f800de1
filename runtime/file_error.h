// The message and the kind of error for every failed system call on a file.
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

// A file that cannot be read here and now, which does not make it a damaged one: it has a newer
// format, or this user may not open it.
class UnreadableError : public Error {
 public:
  using Error::Error;
};

// True for what says nothing about the bytes of a file: it may be good for another program, another
// user or at another time.
bool is_unreadable(const Error& error);

// Throws Error(kind, "<path>: cannot <action>: got <system's text> (errno N), expected <expected>;
// <what to do about that errno>"). An errno that no path can be blamed for has a kind of its own:
// memory for ENOMEM, io for a failing disk or too many open files.
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
