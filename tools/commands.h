// The subcommands: each takes the arguments after its name and returns the exit code; what goes
// wrong is thrown and becomes a code in main().
#pragma once

#include <string>
#include <vector>

namespace duet {

inline constexpr const char* kExitCodes =
    "exit codes: 0 ok, 1 failure, 2 usage or bad input file, 3 out of memory,\n"
    "4 non-finite stop, 128 + the signal after a clean save (130 for SIGINT)\n";

using Arguments = std::vector<std::string>;

int run_train(const Arguments& arguments);
int run_eval(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_inspect(const Arguments& arguments);
int run_tokenize(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_profile(const Arguments& arguments);
int run_presets(const Arguments& arguments);
int run_doctor(const Arguments& arguments);
int run_lab(const Arguments& arguments);
int run_op(const Arguments& arguments);

}  // namespace duet
