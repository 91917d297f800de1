// Rows of ops/shape: reshape, transpose, slice, split, cat, contiguous.
#include "tests/ops/op_cases.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

using Three = std::array<std::int64_t, 3>;

// Output element `to` is input element from(to): the oracle of everything that moves elements.
Tensors moved(const Tensor& x, const Shape& shape, const std::function<Dims(const Dims&)>& from) {
  const Values values = elements(x);
  Values y;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    y.push_back(values[position(x.shape(), from(index_of(shape, i)))]);
  }
  return {tensor_of(shape, y)};
}

OpCase shape_row(const std::string& name, const std::vector<Shape>& inputs) {
  OpCase row;
  row.name = name;
  row.inputs = inputs;
  row.rtol = row.atol = row.grad_rtol = row.grad_atol = 0;  // nothing is computed
  row.saved_bytes = 0;
  row.exact_on_integers = true;
  row.empty_ok = true;
  return row;
}

// The product of the sizes that are not -1.
std::int64_t known_size(const Shape& shape) {
  std::int64_t known = 1;
  for (const std::int64_t d : shape) known *= d == -1 ? 1 : d;
  return known;
}

OpCase reshape_row(const std::string& name, const Shape& from, const Shape& to) {
  OpCase row = shape_row(name, {from});
  row.call = [to](const Tensors& in) { return Tensors{reshape(in[0], to)}; };
  row.oracle = [to](const Tensors& in) {
    Shape shape = to;
    for (int d = 0; d < to.ndim(); ++d) {
      if (to[d] == -1) shape[d] = in[0].numel() / known_size(to);
    }
    return Tensors{tensor_of(shape, elements(in[0]))};
  };
  row.empty_ok = from.numel() / from[0] % known_size(to) == 0;
  return row;
}

OpCase transpose_row(const std::string& name, const Shape& from, int a, int b) {
  OpCase row = shape_row(name, {from});
  row.call = [=](const Tensors& in) { return Tensors{transpose(in[0], a, b)}; };
  row.oracle = [=](const Tensors& in) {
    const auto swapped = [&](Dims dims) {
      std::swap(dims[a < 0 ? a + dims.ndim() : a], dims[b < 0 ? b + dims.ndim() : b]);
      return dims;
    };
    return moved(in[0], swapped(in[0].shape()), swapped);
  };
  return row;
}

OpCase slice_row(const std::string& name, const Shape& from, int dim, std::int64_t begin,
                 std::int64_t end, std::int64_t step) {
  OpCase row = shape_row(name, {from});
  row.call = [=](const Tensors& in) { return Tensors{slice(in[0], dim, begin, end, step)}; };
  row.oracle = [=](const Tensors& in) {
    Shape shape = in[0].shape();
    const int d = dim < 0 ? dim + shape.ndim() : dim;
    shape[d] = (end - begin + step - 1) / step;
    return moved(in[0], shape, [=](Dims index) {
      index[d] = begin + index[d] * step;
      return index;
    });
  };
  row.empty_ok = dim != 0;
  return row;
}

template <std::size_t N>
OpCase split_row(const std::string& name, const Shape& from, int dim,
                 const std::array<std::int64_t, N>& sizes) {
  OpCase row = shape_row(name, {from});
  row.call = [=](const Tensors& in) {
    const std::array<Tensor, N> parts = split(in[0], dim, sizes);
    return Tensors(parts.begin(), parts.end());
  };
  row.oracle = [=](const Tensors& in) {
    Tensors parts;
    const int d = dim < 0 ? dim + in[0].ndim() : dim;
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
      Shape shape = in[0].shape();
      shape[d] = size;
      parts.push_back(moved(in[0], shape, [=](Dims index) {
        index[d] += begin;
        return index;
      })[0]);
      begin += size;
    }
    return parts;
  };
  row.empty_ok = dim != 0;
  return row;
}

OpCase cat_row(const std::string& name, const std::vector<Shape>& inputs, int dim) {
  OpCase row = shape_row(name, inputs);
  row.call = [=](const Tensors& in) { return Tensors{cat(in, dim)}; };
  row.oracle = [=](const Tensors& in) {
    Shape shape = in[0].shape();
    const int d = dim < 0 ? dim + shape.ndim() : dim;
    shape[d] = 0;
    for (const Tensor& part : in) shape[d] += part.shape()[d];
    Values y;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      Dims index = index_of(shape, i);
      std::size_t part = 0;
      while (index[d] >= in[part].shape()[d]) index[d] -= in[part++].shape()[d];
      y.push_back(elements(in[part])[position(in[part].shape(), index)]);
    }
    return Tensors{tensor_of(shape, y)};
  };
  row.bench.assign(inputs.size(), {1024, 512});
  return row;
}

// contiguous of a transposed view, so that there is something to copy.
OpCase contiguous_row() {
  OpCase row = transpose_row("contiguous", {3, 5}, 0, 1);
  row.call = [](const Tensors& in) { return Tensors{contiguous(transpose(in[0], 0, 1))}; };
  row.bench = {{1024, 1024}};
  return row;
}

}  // namespace

std::vector<OpCase> shape_cases() {
  std::vector<OpCase> rows{
      reshape_row("reshape", {4, 3}, {-1, 6}),
      reshape_row("reshape_3d", {4, 6}, {-1, 2, 3}),
      reshape_row("reshape_flat", {2, 3, 5}, {-1}),
      reshape_row("reshape_split", {12, 2}, {-1, 3, 1, 2, 1}),
      transpose_row("transpose", {3, 5, 2}, 0, 1),
      transpose_row("transpose_middle", {2, 3, 4, 5}, 1, -2),
      slice_row("slice", {3, 9}, 1, 1, 8, 2),
      slice_row("slice_window", {3, 8}, 1, 2, 7, 1),
      slice_row("slice_step", {3, 8}, -1, 1, 8, 3),
      slice_row("slice_rows", {6, 2, 3}, 0, 1, 5, 2),
      split_row("split", {3, 8}, 1, Three{4, 1, 3}),
      split_row("split_heads", {2, 3, 6, 4}, -2, Three{4, 1, 1}),
      split_row("split_nothing", {5, 2}, 0, Three{0, 5, 0}),
      split_row("split_two", {2, 3, 6, 4}, 2, std::array<std::int64_t, 2>{2, 4}),
      cat_row("cat", {{2, 3}, {2, 5}}, 1),
      cat_row("cat_three", {{2, 3}, {2, 5}, {2, 1}}, -1),
      cat_row("cat_rows", {{3, 4}, {1, 4}}, 0),
      cat_row("cat_same", {{2, 3}, {2, 3}}, 1),
      contiguous_row(),
  };
  for (OpCase& row : rows) {
    if (row.name == "reshape") row.bench = {{1024, 1536}};
    if (row.name == "transpose") row.bench = {{64, 256, 64}};
    if (row.name == "slice_rows") row.bench = {{6, 512, 512}};
    if (row.name == "split_two") row.bench = {{64, 64, 6, 64}};
    for (const char* name : {"reshape", "transpose", "slice", "cat"}) {
      if (row.name == name) row.golden = name;
    }
  }
  return rows;
}

}  // namespace duet::test
