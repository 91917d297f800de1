// The table of every op's rows, family by family. A new family adds its declaration and one line of
// the list.
#pragma once

#include "tests/ops/op_case.h"

namespace duet::test {

std::vector<OpCase> coupling_cases();
std::vector<OpCase> cross_entropy_cases();
std::vector<OpCase> diff_combine_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> linear_cross_entropy_cases();
std::vector<OpCase> matmul_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> pointwise_cases();
std::vector<OpCase> reduce_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> softmax_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> rope_cases();

inline const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all;
    for (auto family : {
             coupling_cases,
             cross_entropy_cases,
             diff_combine_cases,
             embedding_cases,
             linear_cross_entropy_cases,
             matmul_cases,
             norm_cases,
             pointwise_cases,
             reduce_cases,
             shape_cases,
             softmax_cases,
             attention_cases,
             rope_cases,
         }) {
      for (OpCase& row : family()) all.push_back(std::move(row));
    }
    return all;
  }();
  return cases;
}

}  // namespace duet::test
