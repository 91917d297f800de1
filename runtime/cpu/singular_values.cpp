// Singular values by a bidiagonal form and Eigen's tridiagonal solver. Eigen's BDCSVD takes 47
// seconds to compile, ten times as long, for singular vectors that nobody here asks for.
#include "runtime/cpu/singular_values.h"

#include <Eigen/Eigenvalues>
#include <Eigen/Householder>
#include <algorithm>
#include <cmath>
#include <limits>

namespace duet {

std::vector<double> singular_values(const double* matrix, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = std::min(rows, columns), m = std::max(rows, columns);
  std::vector<double> out(static_cast<std::size_t>(n), std::numeric_limits<double>::quiet_NaN());
  const bool finite =
      std::all_of(matrix, matrix + rows * columns, [](double x) { return std::isfinite(x); });
  if (n == 0 || !finite) return out;
  // [m, n]: the transpose, column-major as Eigen has it, has the same singular values.
  Eigen::MatrixXd a = Eigen::Map<const Eigen::MatrixXd>(matrix, columns, rows);
  if (columns < rows) a.transposeInPlace();

  // Reflections from both sides leave two diagonals, d and e. The symmetric [[0, B], [B^T, 0]] of
  // that bidiagonal B, its rows and columns interleaved, is tridiagonal: zeros on the diagonal and
  // d_0, e_0, d_1, e_1, ... beside it. Its eigenvalues are the singular values and their negatives.
  const Eigen::VectorXd zeros = Eigen::VectorXd::Zero(2 * n);
  Eigen::VectorXd beside(2 * n - 1), scratch(m);
  for (std::int64_t i = 0; i < n; ++i) {
    double tau = 0;
    auto column = a.col(i).tail(m - i);
    column.makeHouseholderInPlace(tau, beside[2 * i]);
    a.bottomRightCorner(m - i, n - i - 1)
        .applyHouseholderOnTheLeft(column.tail(m - i - 1), tau, scratch.data());
    if (i + 1 == n) break;
    auto row = a.row(i).tail(n - i - 1);
    row.makeHouseholderInPlace(tau, beside[2 * i + 1]);
    a.bottomRightCorner(m - i - 1, n - i - 1)
        .applyHouseholderOnTheRight(row.tail(n - i - 2).transpose(), tau, scratch.data());
  }
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;
  solver.computeFromTridiagonal(zeros, beside, Eigen::EigenvaluesOnly);
  for (std::int64_t i = 0; i < n; ++i) {  // ascending: the upper half, from its end
    out[static_cast<std::size_t>(i)] = std::max(0.0, solver.eigenvalues()[2 * n - 1 - i]);
  }
  return out;
}

}  // namespace duet
