// Device memory that a host program cannot misuse unseen. Every allocation has pages of its own in
// one reserved range of addresses, starts at a multiple of 256, is filled with NaN and is followed
// by a guard page; nothing of it can be read or written but by operations of a stream; a freed
// address never comes back. A fault on the first touch tells which allocations an operation uses,
// and opens the part that it touches: what that costs grows with what is used, not with what there
// is.
//
//   | front pad | the allocation | back pad (< 256) | guard page |
//   page        256-aligned                          page
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/sim_cuda/hazards.h"

namespace sim {

struct Allocation {
  int number = 0;            // 1 for the first of the process
  std::uintptr_t pages = 0;  // the first page's address
  std::size_t page_bytes = 0;
  std::uintptr_t start = 0;  // what cudaMalloc returned
  std::size_t bytes = 0;
  bool live = true;
  History history;

  // Since it was last closed: the state of each part (Parts), how many are open, where, and whether
  // an operation wrote.
  std::vector<unsigned char> parts;
  std::size_t open_parts = 0;
  std::size_t open_begin = 0;
  std::size_t open_end = 0;
  bool written = false;

  std::uintptr_t end() const { return start + bytes; }
};

// nullptr where the device's memory (RuntimeOptions::memory) is used up.
void* allocate_device(std::size_t bytes);
// Fails unless `pointer` is the start of a live allocation.
void free_device(void* pointer);

// Whether the address lies in the range of device memory, allocated or not.
bool is_device(const void* pointer);
// The allocation whose bytes hold the address, freed or not; nullptr if none does.
Allocation* find_allocation(const void* pointer);
// Fails unless the bytes lie in one live allocation. `what` names them: "cudaMemsetAsync".
void require_device(const void* pointer, std::size_t bytes, const char* what);

// Between enter and leave the calling thread may touch device memory, for `operation`.
void enter_device(const char* operation);
void leave_device();

// The allocations that have been touched since they were last closed, `written` where by a write
// (of all, if open_writable is set); close_touched() puts them out of reach again.
const std::vector<Allocation*>& touched();
void close_touched();

// Opens memory for writing, too, at a read: fewer faults, but reads and writes are not told apart.
void open_writable(bool writable);

}  // namespace sim
