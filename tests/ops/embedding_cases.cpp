// Rows of embedding.
#include "runtime/memory_ops.h"
#include "tests/ops/op_case.h"

namespace duet::test {
namespace {

Tensor ids_for(const Tensor& weight, const Shape& shape, DType dtype) {
  const Device device = weight.device();
  if (device.type == DeviceType::meta) return Tensor::empty(shape, dtype, device);
  Tensor ids = Tensor::empty(shape, dtype);
  for (std::int64_t n = 0; n < ids.numel(); ++n) {
    const std::int64_t id = (n * 7 + 3) % weight.size(0);
    if (dtype == DType::i32) {
      ids.mutable_data<std::int32_t>()[n] = static_cast<std::int32_t>(id);
    } else {
      ids.mutable_data<std::int64_t>()[n] = id;
    }
  }
  return to_device(ids, weight.device());
}

OpCase embedding_row(const std::string& name, const Shape& weight, const Shape& ids, DType dtype) {
  OpCase row;
  row.name = name;
  row.inputs = {weight};
  row.call = [ids, dtype](const Tensors& in) {
    return Tensors{embedding(in[0], ids_for(in[0], ids, dtype))};
  };
  row.oracle = [ids](const Tensors& in) {
    const std::int64_t vocab = in[0].size(0), width = in[0].size(1);
    Shape shape = ids;
    shape.push_back(width);
    Tensor out = Tensor::empty(shape, DType::f64);
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      const std::int64_t id = (i / width * 7 + 3) % vocab;
      out.mutable_data<double>()[i] = in[0].data<double>()[id * width + i % width];
    }
    return Tensors{out};
  };
  row.rtol = row.atol = 0;
  row.grad_rtol = row.grad_atol = 1e-6;
  row.saved_bytes = ids.numel() * static_cast<std::int64_t>(size_of(dtype));
  row.exact_on_integers = true;
  row.bench = {{64, 65536}};
  row.bench_bytes = 2.0 * 4 * 65536 * static_cast<double>(ids.numel());
  return row;
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  OpCase plain = embedding_row("embedding", {11, 6}, {10}, DType::i64);
  plain.golden = "embedding";
  return {plain, embedding_row("embedding_repeated", {3, 70}, {2, 4, 2}, DType::i32)};
}

}  // namespace duet::test
