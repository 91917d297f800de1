// Advised commands are words that a shell reads back as they were.
#include "train/command_line.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace duet::test {
namespace {

TEST(CommandLine, PlainWordsStayAsTheyAre) {
  EXPECT_EQ(advised({"train", "--resume", "--out_dir", "runs/a-b_1.x"}),
            "duet train --resume --out_dir runs/a-b_1.x");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("The "), "'The '");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("~/x"), "'~/x'");
  EXPECT_EQ(shell_word("caf\xC3\xA9"), "'caf\xC3\xA9'");
  EXPECT_EQ(shell_word("a\x1b[31m'\\"), "$'a\\x1b[31m\\'\\\\'");
}

TEST(CommandLine, BashReadsEveryByteBack) {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& word : {all, std::string("$HOME `id` \"$(id)\" \\ ! # ; & | * ?'"),
                                  std::string("\x01"
                                              "23\xff"
                                              "abc")}) {
    const std::string script = "printf %s " + shell_word(word);
    std::string quoted = "'";
    for (const char c : script) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    FILE* pipe = popen(("LC_ALL=C bash -c " + quoted + "'").c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string back;
    std::array<char, 512> buffer{};
    for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
      back.append(buffer.data(), n);
    }
    EXPECT_EQ(pclose(pipe), 0);
    EXPECT_EQ(back, word);
  }
}

TEST(CommandLine, TheProgramIsWhatTheUserCalled) {
  set_program("my build/duet");
  EXPECT_EQ(advised({"doctor"}), "'my build/duet' doctor");
  set_program("");
  EXPECT_EQ(advised({"doctor"}), "duet doctor");
}

}  // namespace
}  // namespace duet::test
