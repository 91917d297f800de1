// Singular values of a dense matrix, in double.
#pragma once

#include <cstdint>
#include <vector>

namespace duet {

// Of a row-major [rows, columns] matrix, largest first; all NaN if an element is not finite. Serial
// and thread-safe: callers spread matrices over threads.
std::vector<double> singular_values(const double* matrix, std::int64_t rows, std::int64_t columns);

}  // namespace duet
