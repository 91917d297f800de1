#include "runtime/cpu/singular_values.h"

#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>

namespace duet {

std::vector<double> singular_values(const double* matrix, std::int64_t rows, std::int64_t columns) {
  const std::int64_t count = std::min(rows, columns);
  std::vector<double> out(static_cast<std::size_t>(count),
                          std::numeric_limits<double>::quiet_NaN());
  const bool finite =
      std::all_of(matrix, matrix + rows * columns, [](double x) { return std::isfinite(x); });
  if (count == 0 || !finite) return out;
  // The transpose, column-major as Eigen has it, has the same singular values.
  const Eigen::Map<const Eigen::MatrixXd> transposed(matrix, columns, rows);
  const Eigen::BDCSVD<Eigen::MatrixXd> svd(transposed);
  std::copy_n(svd.singularValues().data(), count, out.begin());
  return out;
}

}  // namespace duet
