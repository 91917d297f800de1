// A product of two float matrices on the host, for the fake cublasLt: any strides, packed into
// blocks so that whole trainings can run in the simulator.
#pragma once

#include <cstdint>

namespace sim {

// Element (row, column) lies at data[row * row_stride + column * column_stride].
struct Matrix {
  const float* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

// c[i + j * rows] = sum over l of a(i, l) * b(l, j): a is [rows, inner], b [inner, columns], c
// column-major without gaps. Sums in float: within blocks of the inner dimension, then over them.
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, Matrix a, Matrix b,
              float* c);

}  // namespace sim
