// What reaches a terminal: letters of every script, and no control but our own.
#include "runtime/terminal_text.h"

#include <gtest/gtest.h>

namespace duet::test {
namespace {

TEST(TerminalText, ControlsAreSpelledOut) {
  EXPECT_EQ(terminal_text("plain\ttext\n"), "plain\ttext\n");
  EXPECT_EQ(terminal_text("caf\u00e9 \u6587\u5b57 \U0001F600"),
            "caf\u00e9 \u6587\u5b57 \U0001F600");
  EXPECT_EQ(terminal_text("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(terminal_text("a\rb\x7f"), "a\\x0db\\x7f");
  EXPECT_EQ(terminal_text("\u009b31m"), "\\xc2\\x9b31m");  // C1 as UTF-8
  EXPECT_EQ(terminal_text("\x9b"), "\\x9b");               // and as a byte
  for (const char* bidi : {"\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069"}) {
    EXPECT_EQ(terminal_text(bidi)[0], '\\') << bidi;
  }
  EXPECT_EQ(terminal_text(std::string("\0", 1)), "\\x00");
}

// However the bytes are cut, the whole reads the same.
TEST(TerminalText, PiecesMayEndWithinACharacter) {
  const std::string text = "a\u00e9\u6587\U0001F600\xff\xc3(\u202e\x1b[1m\xf0\x9f\n";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    TerminalStream stream;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += size) out += stream.add(text.substr(at, size));
    EXPECT_EQ(out, terminal_text(text)) << size;
  }
}

TEST(TerminalText, OurOwnControlsPassAroundSafeText) {
  EXPECT_EQ(Screen(Paint::green, "b\x1b").bytes(), "\x1b[32mb\\x1b\x1b[0m");
  EXPECT_EQ(Screen(Paint::none, "b").bytes(), "b");
  const Screen line = Screen::cleared_line() + "step 1 | " + Screen(Paint::bold, "x") + "\x1b\n";
  EXPECT_EQ(line.bytes(), "\r\x1b[2Kstep 1 | \x1b[1mx\x1b[0m\\x1b\n");
}

}  // namespace
}  // namespace duet::test
