// toml++ as configurations are read with it. Included only by what parses one.
#pragma once

namespace duet {

// Thrown where the library finds that it is wrong: an error like any other, not an abort, and not
// what the compiler may assume never to happen.
struct TomlFault {};
[[noreturn]] inline void toml_fault() { throw TomlFault{}; }

}  // namespace duet

#define TOML_HEADER_ONLY 1        // compiled here, with the checks and limits that follow
#define TOML_MAX_NESTED_VALUES 4  // lists and inline tables; a configuration has lists of numbers
#define TOML_ASSERT(condition)              \
  do {                                      \
    if (!(condition)) ::duet::toml_fault(); \
  } while (false)
#undef NDEBUG  // with it the library drops its checks and assumes that they hold
#include <toml++/impl/preprocessor.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE ::duet::toml_fault()
#include <toml++/toml.h>
