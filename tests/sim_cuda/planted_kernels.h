// Kernels for the simulator's own test: right ones, and the same with a bug planted.
#pragma once

#include <vector>

#include "tests/sim_cuda/engine.h"

namespace sim {

enum class Bug {
  none,
  no_barrier_before_use,   // reduce, matmul: others' shared memory is read too early
  no_barrier_after_use,    // matmul: it is overwritten too early
  divergent_barrier,       // matmul, reduce: some threads go to another barrier
  overrun,                 // matmul (dynamic), transpose (static)
  far_overrun,             // matmul: beyond the rest of the last page
  uninitialised,           // reduce: an element nobody wrote
  divergent_shuffle,       // softmax: half of the lanes shuffle with a full mask
  exited_lane,             // softmax: half of the lanes have returned
  source_outside_mask,     // softmax
  lane_outside_own_mask,   // softmax
  barrier_against_shuffle  // softmax: half of the lanes wait at a barrier
};

// y[i] = a[i] + b[i]
std::vector<float> vector_add(const std::vector<float>& a, const std::vector<float>& b);
// Sum of x by blocks of 128 threads: parts[block].
std::vector<float> block_sums(const std::vector<float>& x, int blocks, Bug bug = Bug::none);
// Softmax of rows of 64 columns, one warp a row.
std::vector<float> softmax_rows(const std::vector<float>& x, int rows, Bug bug = Bug::none);
// C[m,n] = A[m,k] B[k,n] in tiles of 8 x 8.
std::vector<float> tiled_matmul(const std::vector<float>& a, const std::vector<float>& b, int m,
                                int n, int k, Bug bug = Bug::none);
// y[c, r] = x[r, c], 32 x 32, through static shared memory.
std::vector<float> transpose(const std::vector<float>& x, Bug bug = Bug::none);

// What a grid saw: for every thread of a launch of `grid` x `block`, in the order of their indices,
// how often it ran.
std::vector<int> visits(dim3 grid, dim3 block);
// {atomicAdd, atomicMax, atomicMin, atomicExch's old values summed, successful atomicCAS} of 100
// threads.
std::vector<int> atomics();
// {votes of __syncthreads_count, _or, _and, ballot, any, all, shuffle up, down, width 8} of one
// warp.
std::vector<int> votes();

// Launches that a GPU refuses, and kernels that ask for too much.
void launch_empty(dim3 grid, dim3 block, std::size_t shared_bytes);
void too_much_static_memory();
void dynamic_memory_of_0_bytes();
void full_stack();

}  // namespace sim
