// duet op: the op set. Finds the subcommand; tools/op_*.cpp do the work.
#include "runtime/error.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/examples.h"
#include "tools/op_commands.h"
#include "tools/output.h"
#include "train/command_line.h"

namespace duet {

int run_op(const Arguments& arguments) {
  const std::string help =
      "duet op NAME ...\n  the ops: what each can do, and the proof that it is right;\n"
      "  duet op NAME --help tells more\n\n"
      "  list               every op: devices, dtypes, gradient, which implementation runs\n"
      "  check [NAME]       proves one op or all, and times it\n"
      "  new NAME           the skeleton of an op, written into the source tree\n";
  check(!arguments.empty(), ErrorKind::usage,
        "duet op: NAME is missing: expected list, check or new; see ", advised({"op", "--help"}));
  const Arguments rest(arguments.begin() + 1, arguments.end());
  const std::string& name = arguments.front();
  if (name == "list") return run_op_list(rest);
  if (name == "check") return run_op_check(rest);
  if (name == "new") return run_op_new(rest);
  check(name == "--help" || name == "-h", ErrorKind::usage, "duet op: got ", in_quotes(name),
        ", expected list, check or new; see ", advised({"op", "--help"}));
  write_out(help + examples("duet op"));
  return 0;
}

}  // namespace duet
