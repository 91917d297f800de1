#include "runtime/terminal_text.h"

#include <algorithm>

#include "runtime/printable.h"

namespace duet {

std::string terminal_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char first = text.front();
    std::size_t length = 1;
    if (first == '\n' || first == '\t' || (first >= 0x20 && first < 0x7f)) {
      out += first;
    } else {
      length = std::max<std::size_t>(utf8_length(text), 1);
      out += printable(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string TerminalStream::add(std::string_view piece) {
  const std::string text = waiting_.append(piece);
  // A character that is not whole yet is a first byte and at most two that continue it; those of
  // no character at all do not wait.
  constexpr std::size_t kLongest = 4;
  std::size_t kept = text.size();
  for (std::size_t n = 1; n < kLongest && n <= text.size(); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if ((byte & 0xc0U) == 0x80U) continue;
    const std::size_t whole = byte < 0xc2 || byte > 0xf4 ? 1
                              : byte < 0xe0              ? 2
                              : byte < 0xf0              ? 3
                                                         : 4;
    if (n < whole) kept = text.size() - n;
    break;
  }
  waiting_ = text.substr(kept);
  return terminal_text(std::string_view(text).substr(0, kept));
}

Screen::Screen(Paint paint, std::string_view text) {
  constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[33m", "\x1b[32m"};
  bytes_ = kCodes[static_cast<std::size_t>(paint)] + terminal_text(text) +
           (paint == Paint::none ? "" : "\x1b[0m");
}

Screen Screen::cleared_line() {
  Screen out("");
  out.bytes_ = "\r\x1b[2K";
  return out;
}

}  // namespace duet
