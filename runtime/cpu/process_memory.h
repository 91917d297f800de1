// What the system and malloc say about this process; bytes.
#pragma once

#include <cstdint>

namespace duet {

std::uint64_t resident_bytes();       // in main memory now
std::uint64_t mapped_bytes();         // of address space now
std::uint64_t peak_resident_bytes();  // highest since the process began
std::uint64_t malloc_bytes();         // what malloc holds from the system; 0 where it does not say

}  // namespace duet
