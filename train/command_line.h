// Commands that a message advises, so that they can be pasted as they are: they begin with the
// program as the user called it, and what a shell would take apart is quoted.
//
//   advised({"train", "--resume", "--out_dir", dir})   // build/duet train --resume --out_dir 'my
//   run'
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace duet {

// How the user called the program: "build/duet", or "duet" where it was found through PATH. It is
// "duet" until main() says otherwise, so a program that uses the library advises that.
void set_program(std::string_view name);
const std::string& program();

// One word for a POSIX shell. Bytes that a terminal would act on are spelled out: $'a\x1bb', which
// bash, zsh and ksh read.
std::string shell_word(std::string_view word);

// The program and these words.
std::string advised(const std::vector<std::string>& words);

}  // namespace duet
