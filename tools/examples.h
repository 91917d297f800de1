// The lines at the end of every --help, to be pasted.
#pragma once

#include <string>
#include <string_view>

namespace duet {

// "\nexamples:\n  build/duet eval --checkpoint runs/book --data book.txt\n" for "duet eval"; the
// lines begin with the program as the user called it. Requires a command of the table in
// examples.cpp.
std::string examples(std::string_view command);

}  // namespace duet
