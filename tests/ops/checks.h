// The checks every row of tests/ops/op_cases.h passes. Each returns "" or the first fault, naming
// row, tensor, element, got and expected. harness_test.cpp feeds each a faulty op that it must
// catch.
#pragma once

#include <string>

#include "tests/ops/op_case.h"

namespace duet::test {

// --- gradient_checks.cpp
// f64 gradients against central differences, with a random cotangent on every output.
std::string check_gradients(const OpCase& row);
// The same must fail, for each input, once the gradient has a wrong sign, size or a missing
// element.
std::string check_wrong_gradients_are_caught(const OpCase& row);
// One tensor in the place of all inputs (x * x; x @ x^T), where the shapes allow it.
std::string check_same_tensor_twice(const OpCase& row);
// Two consumers of every output: their gradients add up.
std::string check_outputs_used_twice(const OpCase& row);
// A gradient that arrives transposed, with gaps, or expanded from one number.
std::string check_strided_cotangents(const OpCase& row);
// Only one input requires grad: the same gradient for it, none for the others.
std::string check_single_gradients(const OpCase& row);

// The gradients by central differences, element by element, in f64.
Tensors numeric_gradients(const OpCase& row, const Tensors& inputs, const Tensors& cotangents);

// A second backward adds into the gradient that the leaf holds, in place.
std::string check_accumulation(const OpCase& row);

// Two calls on other inputs, then one backward through both: each gets the gradients of its own
// inputs, which only Saved can know.
std::string check_calls_apart(const OpCase& row);

// --- second_order_checks.cpp
// Whether every op of the row has second derivatives.
bool offers_second_order(const OpCase& row);
// f64 second gradients against central differences of the first; a row that offers none must refuse
// create_graph by name.
std::string check_second_order(const OpCase& row);
// The same must fail once a second gradient is wrong.
std::string check_wrong_second_order_is_caught(const OpCase& row);

// --- value_checks.cpp
// f64 and f32 outputs against the oracle; f32 gradients against f64 gradients.
std::string check_oracle(const OpCase& row);
// Small whole numbers: not one bit off, where the row says so.
std::string check_integers(const OpCase& row);
// Five runs give the same bits.
std::string check_repeated_runs(const OpCase& row);
// One NaN or infinity in an input reaches the elements that it reaches in the oracle, no others.
std::string check_specials(const OpCase& row);
// Inputs far from 0: f32 overflows nowhere on the way to an output or gradient that it could hold.
std::string check_large_inputs(const OpCase& row);
// Takes what the allocator holds in its cache, fills it with `value` and gives it back, so that
// what is allocated next holds it.
void fill_free_memory(double value);
// Two runs, the second in memory that is NaN before it is written and once it is freed, give the
// same bits.
std::string check_same_bits(const OpCase& row);
// f64 outputs and gradients against the values that PyTorch gave (tests/golden/ops.safetensors).
std::string check_golden(const OpCase& row);
bool golden_file_is_there();
// Bytes kept for backward: the row's budget after forward, none after backward.
std::string check_saved_bytes(const OpCase& row);
// All memory is given back once outputs and gradients are dropped.
std::string check_leaks(const OpCase& row);

// --- layout_checks.cpp
// Transposed, stepped, offset and expanded inputs against contiguous ones.
std::string check_strides(const OpCase& row);
// Size 0 and size 1 in dim 0 of the first input, and of the inputs that share that size and rank.
std::string check_small_sizes(const OpCase& row);
// Where the row broadcasts: left, right, both, against one number: values and gradients.
std::string check_broadcasting(const OpCase& row);

// --- error_checks.cpp
// Mixed dtypes, mixed devices, whole-number and undefined inputs: an Error that names the op.
std::string check_errors(const OpCase& row);
// On meta: the same shapes, forward and backward, no byte touched, the same blocks taken as on
// test_device().
std::string check_meta(const OpCase& row);

}  // namespace duet::test
