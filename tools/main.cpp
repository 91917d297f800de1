// duet: the command line. Finds the subcommand; turns what is thrown into a message and exit code.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <new>

#include "runtime/cpu/instruction_set.h"
#include "runtime/cpu/memory_limits.h"
#include "runtime/cpu/openmp.h"
#include "runtime/error.h"
#include "runtime/memory_advice.h"
#include "runtime/printable.h"
#include "runtime/stop.h"
#include "tools/commands.h"
#include "tools/examples.h"
#include "tools/output.h"
#include "tools/restart.h"
#include "train/command_line.h"
#include "train/environment.h"
#include "train/text.h"
#include "train/typing.h"

namespace duet {
namespace {

struct Command {
  std::string_view name, summary;
  int (*run)(const Arguments&);  // null: not in this version
};

constexpr std::array<Command, 14> kCommands{{
    {"train", "train a model; resumes with --resume", run_train},
    {"eval", "loss, perplexity and bits per byte of a checkpoint on a text", run_eval},
    {"generate", "continue a prompt", run_generate},
    {"inspect", "what a checkpoint, weights or tokenizer holds", run_inspect},
    {"tokenize", "text to token ids, or back", run_tokenize},
    {"profile", "memory and time of a training step, by layer", run_profile},
    {"bench", "a training step beside the floor of its arithmetic", run_bench},
    {"lab", "compare arms over seeds: restartable experiments and their reports", run_lab},
    {"op", "the ops: what each can do, and the proof that it is right", run_op},
    {"presets", "the named models with their sizes", run_presets},
    {"doctor", "device, libraries, instruction set, threads", run_doctor},
    {"prepare", "", nullptr},
    {"import", "", nullptr},
    {"export", "", nullptr},
}};

enum ExitCode { kOk = 0, kFailure = 1, kUsage = 2, kMemory = 3, kNonFinite = 4 };

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
    case ErrorKind::file:
      return kUsage;
    case ErrorKind::memory:
      return kMemory;
    case ErrorKind::non_finite:
      return kNonFinite;
    default:
      return kFailure;
  }
}

std::string help() {
  std::string out = fmt::format(
      "duet {}: trains transformers with coupled query-key attention\n\n"
      "usage: duet COMMAND [arguments]; duet COMMAND --help tells more\n\n",
      version());
  std::string later;
  for (const Command& command : kCommands) {
    if (command.run != nullptr) {
      out += fmt::format("  {:<10} {}\n", command.name, command.summary);
    } else {
      later += fmt::format(" {}", command.name);
    }
  }
  return out + "\nnot in this version yet:" + later + "\n\n" + kExitCodes + examples("duet");
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) {
    write_error(help());
    return kUsage;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    write_out(help());
    return kOk;
  }
  if (name == "--version") {
    write_out(fmt::format("duet {}\n", version()));
    return kOk;
  }
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command.name == name) {
      check(command.run != nullptr, ErrorKind::usage, "duet ", name, ": not in this version yet");
      cap_instruction_set();
      return command.run(Arguments(arguments.begin() + 1, arguments.end()));
    }
    names.push_back(command.name);
  }
  const std::optional<std::string> flag = name_after_dash(name);
  check(!flag, ErrorKind::usage, "duet: got ", in_quotes(name), ", which ", dash_words(name),
        ", expected --", printable(flag.value_or("")), "; type two hyphens");
  const std::string_view nearest = nearest_name(name, names);
  throw Error(ErrorKind::usage, concat("duet: no such command: got ", in_quotes(name), "; ",
                                       nearest.empty() ? "see " + advised({"--help"})
                                                       : concat("did you mean ", nearest, "?")));
}

// ": got 2.0 MiB free of the 512 MiB address-space limit (ulimit -v)"
std::string tightest_limit() {
  const MemoryLimit limit = tightest_memory_limit();
  if (limit.total == 0) return "";
  return concat(": got ", format_bytes(limit.free), " free of the ", format_bytes(limit.total), " ",
                limit.name);
}

int run(const Arguments& arguments) {
  try {
    return dispatch(arguments);
  } catch (const ReaderGone&) {
    return kOk;
  } catch (const Stopped& stopped) {  // before there was anything to save
    return 128 + stopped.signal;
  } catch (const Error& error) {
    write_error(concat("error: ", error.what(), "\n"));
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    write_error(concat(
        "error: out of memory: a small request was refused", tightest_limit(), "; ",
        memory_advice().empty() ? "use a smaller batch_size or model" : memory_advice(), "\n"));
    return kMemory;
  } catch (const std::exception& error) {
    write_error(concat("error: unexpected: ", error.what(), "\n"));
    return kFailure;
  } catch (...) {
    write_error("error: unexpected, and it does not say what\n");
    return kFailure;
  }
}

// malloc reserves 64 MiB of address space for each thread's own arena. Where that is bounded, the
// threads share one: kernels hardly ask for memory.
void share_arena() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    ::mallopt(M_ARENA_MAX, 1);
  }
}

// libgomp's threads wait for each other in a loop that is far too long where something else runs on
// the same cores: a step then takes 20 times as long. libgomp reads the length as it is loaded, so
// the program starts again with a short one; what the user chose stays.
void wait_briefly(const Arguments& arguments) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  std::array<char, 4096> self{};  // the real path, so that tools show the program's own name
  const ssize_t length = ::readlink(restart().file.c_str(), self.data(), self.size() - 1);
  if (length <= 0 || ::setenv("GOMP_SPINCOUNT", "1000", 1) != 0) return;
  unbind_thread();  // it keeps where this thread may run
  std::vector<std::string> words = restart().words;
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> again;
  for (std::string& word : words) again.push_back(word.data());
  again.push_back(nullptr);
  ::execv(self.data(), again.data());  // returns only if it fails: then the long wait has to do
}

}  // namespace
}  // namespace duet

int main(int argc, char** argv) {
  const duet::Arguments arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  duet::set_restart(argc, argv);
  duet::wait_briefly(arguments);
  duet::share_arena();
  duet::reserve_standard_descriptors();
  // A write that nobody reads, or beyond ulimit -f, is an error to handle, not the end.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  if (argc > 0) duet::set_program(argv[0]);
  try {
    return duet::run(arguments);
  } catch (...) {
    // Not even the message of an error found room.
    constexpr std::string_view kText = "error: out of memory, even for this message\n";
    const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
    return written < 0 ? 1 : 3;
  }
}
