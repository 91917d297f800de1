// The subcommands of `duet op`, one file each.
#pragma once

#include "tools/commands.h"

namespace duet {

int run_op_list(const Arguments& arguments);
int run_op_new(const Arguments& arguments);
int run_op_check(const Arguments& arguments);

}  // namespace duet
