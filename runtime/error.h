// Errors: one exception type with a kind, one helper. Messages are built only when a check fails.
//
//   check(k == n, ErrorKind::shape, "matmul: inner dimensions differ: a is ", a, ", b is ", b);
//
// Form of every message: "op or file: what is wrong: got ..., expected ...; what to do".
#pragma once

#include <cstdint>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

namespace duet {

enum class ErrorKind : std::uint8_t {
  shape,       // dimensions that do not fit
  dtype,       // element type that an op or a file reader does not take
  device,      // a device, or a kernel for it, that this build or machine has not
  index,       // a dim, id or offset out of range
  memory,      // out of memory                                              (exit 3)
  autograd,    // a graph used in a way that cannot give a gradient
  usage,       // a flag, key or configuration the user must change          (exit 2)
  file,        // an input file that is missing, malformed or does not fit   (exit 2)
  io,          // the system refused a read or write: disk full, permission  (exit 1)
  non_finite,  // training stopped on NaN or infinity                        (exit 4)
  internal,    // a bug in Duet
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// The parts streamed one after another, in the classic locale whatever the process uses.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  (text << ... << parts);
  return text.str();
}

// Throws Error(kind, parts...) unless `ok`.
template <class... Parts>
void check(bool ok, ErrorKind kind, const Parts&... parts) {
  if (ok) [[likely]] {
    return;
  }
  throw Error(kind, concat(parts...));
}

}  // namespace duet
