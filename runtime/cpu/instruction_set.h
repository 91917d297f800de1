// Which instruction set the CPU's kernels use: ours (Highway) and oneDNN's products are capped
// together by the environment variable DUET_ISA, so that a machine can compute as a lesser one.
//
//   DUET_ISA=avx2 duet train ...      # on a processor with AVX-512: the bits of one without
#pragma once

#include <string>

namespace duet {

// Applies DUET_ISA: baseline (the lowest that is compiled; oneDNN's SSE4.1), avx2, avx512, or best
// (no cap; so is an unset variable). Must come before the first kernel and the first product, which
// the CPU's allocator and oneDNN's engine see to; later calls change nothing. Returns the word.
// Throws Error(usage) for another word, or an instruction set that the processor does not offer.
const std::string& cap_instruction_set();

// Highway's name of what our kernels use under the cap: "AVX2"; "scalar" for plain loops.
std::string vector_target();

}  // namespace duet
