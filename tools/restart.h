// How this process was started, so that it can be started again: by itself, to change its
// environment, and by `duet lab`, once per run.
//
//   build/duet train              /proc/self/exe is the program
//   ld-linux.so.2 build/duet ...  /proc/self/exe is the loader, which takes the program as an
//                                 argument, after options of its own
#pragma once

#include <string>
#include <vector>

namespace duet {

struct Restart {
  // To be executed: /proc/self/exe, which stays this file even when its path gets another one.
  std::string file = "/proc/self/exe";
  // What comes before the program's arguments: argv[0], or the loader, its options and the program.
  std::vector<std::string> words;
};

// Told once by main(), with the arguments that it got.
void set_restart(int argc, char* const* argv);
const Restart& restart();

}  // namespace duet
