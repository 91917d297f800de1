// What a command shows on a terminal holds no control character of a file, a name or a model; into
// a pipe go the bytes as they are.
#include <cstdlib>

#include "tests/tools/process.h"

namespace duet::test {
namespace {

class TerminalCommandTest : public CommandTest {
 protected:
  // The same on a terminal; `out` is what it was sent.
  Ended on_terminal(const std::vector<std::string>& arguments, const std::string& input = "") {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(grantpt(master), 0);
    EXPECT_EQ(unlockpt(master), 0);
    const std::string name = ptsname(master);
    const int held = open(name.c_str(), O_RDWR | O_NOCTTY);  // keeps what was written
    ProcessOptions options;
    options.input = input;
    options.child = [name] {
      const int slave = open(name.c_str(), O_RDWR | O_NOCTTY);
      dup2(slave, 1);
      close(slave);
    };
    Ended ended = duet(arguments, options);
    fcntl(master, F_SETFL, O_NONBLOCK);
    char buffer[4096];
    for (ssize_t n; (n = read(master, buffer, sizeof buffer)) > 0;) {
      ended.out.append(buffer, static_cast<std::size_t>(n));
    }
    close(held);
    close(master);
    return ended;
  }
};

// The terminal driver turns \n into \r\n.
TEST_F(TerminalCommandTest, DecodedBytesAreSafeThereAndRawInAPipe) {
  const std::vector<std::string> decode = {"tokenize", "--tokenizer", "byte", "--decode"};
  const std::string ids = "[27, 93, 48, 7, 194, 155, 226, 128, 174, 195, 169, 10]";
  EXPECT_EQ(on_terminal(decode, ids).out, "\\x1b]0\\x07\\xc2\\x9b\\xe2\\x80\\xae\u00e9\r\n");
  ProcessOptions piped;
  piped.input = ids;
  EXPECT_EQ(duet(decode, piped).out, "\x1b]0\x07\u009b\u202e\u00e9\n");
}

// A byte tokenizer writes a character in pieces.
TEST_F(TerminalCommandTest, AGeneratedTextIsShownCharacterByCharacter) {
  ASSERT_EQ(duet(training("run", {"--max_iters", "1"})).code, 0);
  const std::vector<std::string> say = {"generate",        "--checkpoint",     "run", "--prompt",
                                        "\x1b[31m\u00e9 ", "--max_new_tokens", "8"};
  const std::string raw = duet(say).out;
  EXPECT_EQ(raw.rfind("\x1b[31m\u00e9 ", 0), 0U);
  const std::string shown = on_terminal(say).out;
  EXPECT_EQ(shown.rfind("\\x1b[31m\u00e9 ", 0), 0U) << shown;
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
}

TEST_F(TerminalCommandTest, NamesAndMessagesAreSafe) {
  const std::string name = "x\x1b]0;t\x07\u009b\u202e.safetensors";
  write(name, "no tensors at all");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"inspect", name},
                                             {"train", "--data", name, "--out_dir", name},
                                             {"train", "--print-config", "--data", name},
                                             {"eval", "--checkpoint", name, "--data", name},
                                             {"generate", "--checkpoint", name, "--prompt", name},
                                             {"lab", "report", name},
                                             {name}}) {
    const Ended ended = on_terminal(command);
    const std::string all = ended.out + ended.err;
    EXPECT_FALSE(all.empty());
    for (const char* control : {"\x1b", "\x07", "\u009b", "\u202e"}) {
      EXPECT_EQ(all.find(control), std::string::npos) << command[0] << ": " << all;
    }
  }
}

}  // namespace
}  // namespace duet::test
