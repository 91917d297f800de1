// A kernel that touches memory it must not touch ends with the simulator's words, not with a
// signal.
#pragma once

namespace sim {

// Puts a handler of SIGSEGV before the present one, once. What it does not know, the former gets.
void install_fault_handler();

}  // namespace sim
