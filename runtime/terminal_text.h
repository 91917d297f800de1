// Text for a screen. Names of files, metadata and what a model writes may hold characters that a
// terminal acts on (ESC, C1, bidirectional controls); they are spelled out here, on the way out, so
// that no place that makes text has to remember it. Newlines and tabs pass.
//
//   write(fd, terminal_text("a\x1b[2Jb\n"))            a\x1b[2Jb
//   Screen line = Screen(Paint::green, "best") + path;  our own colour, with a path after it
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace duet {

// What a terminal would act on becomes \xNN, and so do bytes that are no UTF-8.
std::string terminal_text(std::string_view text);

// The same for text that comes in pieces, which may end within a character: its bytes wait for the
// next piece.
class TerminalStream {
 public:
  std::string add(std::string_view piece);

 private:
  std::string waiting_;
};

enum class Paint : std::uint8_t { none, bold, yellow, green };

// A line of our own making: the one way for a control sequence to a screen. Text that joins it is
// made safe first.
class Screen {
 public:
  Screen(std::string_view text) : bytes_(terminal_text(text)) {}       // NOLINT: a text is one
  Screen(const std::string& text) : Screen(std::string_view(text)) {}  // NOLINT
  Screen(const char* text) : Screen(std::string_view(text)) {}         // NOLINT
  Screen(Paint paint, std::string_view text);
  // Goes back to the start of the line, and empties it.
  static Screen cleared_line();

  Screen& operator+=(const Screen& more) {
    bytes_ += more.bytes_;
    return *this;
  }
  friend Screen operator+(Screen a, const Screen& b) { return a += b; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace duet
