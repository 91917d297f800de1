// The fake cublasLt: the rules of a product. Matrices are column-major unless their layout says
// otherwise, so a leading dimension that fits the transposed matrix is the usual mistake.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/sim_cuda/blas_lt.h"
#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/memory.h"
#include "tests/sim_cuda/runtime.h"

namespace sim::blas_lt {

namespace {

using Bytes = unsigned long long;  // as printf has it

bool has(std::uint32_t epilogue, std::uint32_t bits) { return (epilogue & bits) == bits; }

// The bias vector, or the gradient of one, has an element per row of D; only BGRADB's per column.
bool uses_bias(std::uint32_t epilogue) {
  return has(epilogue, CUBLASLT_EPILOGUE_BIAS) || has(epilogue, CUBLASLT_EPILOGUE_DGELU_BGRAD) ||
         epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool writes_bias(std::uint32_t epilogue) {
  return uses_bias(epilogue) && !has(epilogue, CUBLASLT_EPILOGUE_BIAS);
}
bool writes_aux(std::uint32_t epilogue) { return has(epilogue, CUBLASLT_EPILOGUE_GELU_AUX); }
bool uses_aux(std::uint32_t epilogue) {
  return has(epilogue, CUBLASLT_EPILOGUE_GELU_AUX) || has(epilogue, CUBLASLT_EPILOGUE_DGELU);
}
std::int64_t bias_length(const Problem& p) {
  return p.op.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n() : p.m();
}

// Elements of a line that lies without gaps, and the number of such lines `ld` apart.
std::uint64_t line(const Layout& l) { return l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols; }
std::uint64_t lines(const Layout& l) { return l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows; }

void check_layout(const Layout& l, const char* name) {
  if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW) {
    fail("cublasLtMatmul: memory order %d of %s is not simulated", l.order, name);
  }
  if (l.rows == 0 || l.cols == 0) {
    fail("cublasLtMatmul: %s is [%llu, %llu]: a product with an empty matrix", name, Bytes{l.rows},
         Bytes{l.cols});
  }
  if (std::max(l.rows, l.cols) > std::numeric_limits<std::int32_t>::max()) {
    fail("cublasLtMatmul: %s is [%llu, %llu], more than an int32", name, Bytes{l.rows},
         Bytes{l.cols});
  }
  if (l.ld < static_cast<std::int64_t>(line(l))) {
    fail(
        "cublasLtMatmul: leading dimension %lld of %s is less than its %llu %s (as stored, "
        "%s-major)",
        static_cast<long long>(l.ld), name, Bytes{line(l)},
        l.order == CUBLASLT_ORDER_COL ? "rows" : "columns",
        l.order == CUBLASLT_ORDER_COL ? "column" : "row");
  }
  if (l.batch < 1 || l.stride < 0) {
    fail("cublasLtMatmul: %s has batch count %d and stride %lld", name, l.batch,
         static_cast<long long>(l.stride));
  }
}

void check_types(const Problem& p) {
  const bool tf32 = p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (tf32 && !runtime_options().allow_tf32) {
    fail(
        "cublasLtMatmul: the product runs in TF32, which loses 13 bits and was not asked for "
        "(DUET_SIM_TF32=1 allows it)");
  }
  const bool inputs = p.a.type == p.b.type && (p.a.type == CUDA_R_32F || p.a.type == CUDA_R_16BF);
  const bool outputs = p.c.type == p.d.type && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
  if ((p.op.compute != CUBLAS_COMPUTE_32F && !tf32) || p.op.scale != CUDA_R_32F || !inputs ||
      !outputs) {
    fail(
        "cublasLtMatmul: types A %u, B %u, C %u, D %u, scale %d with compute type %d are not in "
        "cublasLt's table, or not simulated",
        p.a.type, p.b.type, p.c.type, p.d.type, p.op.scale, p.op.compute);
  }
  const auto as_d = [&](std::int32_t type) {
    return type == -1 || static_cast<std::uint32_t>(type) == p.d.type;
  };
  if (!as_d(p.op.bias_type) || !as_d(p.op.aux_type)) {
    fail("cublasLtMatmul: bias or aux of another type than D is not simulated");
  }
}

void check_shapes(const Problem& p) {
  const auto transposes = [](std::int32_t op, const char* name) {
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T) {
      fail("cublasLtMatmul: operation %d on %s is not simulated", op, name);
    }
    return op == CUBLAS_OP_T;
  };
  const bool ta = transposes(p.op.transa, "A");
  const bool tb = transposes(p.op.transb, "B");
  if (p.op.transc != CUBLAS_OP_N) fail("cublasLtMatmul: only N is supported for C");
  const Bytes am = ta ? p.a.cols : p.a.rows;
  const Bytes ak = ta ? p.a.rows : p.a.cols;
  const Bytes bk = tb ? p.b.cols : p.b.rows;
  const Bytes bn = tb ? p.b.rows : p.b.cols;
  if (ak != bk || am != p.d.rows || bn != p.d.cols || p.c.rows != p.d.rows ||
      p.c.cols != p.d.cols) {
    fail(
        "cublasLtMatmul: shapes do not fit: op(A) [%llu, %llu], op(B) [%llu, %llu], C [%llu, "
        "%llu], D [%llu, %llu]",
        am, ak, bk, bn, Bytes{p.c.rows}, Bytes{p.c.cols}, Bytes{p.d.rows}, Bytes{p.d.cols});
  }
  if (p.a.batch != p.d.batch || p.b.batch != p.d.batch || p.c.batch != p.d.batch) {
    fail("cublasLtMatmul: batch counts differ: A %d, B %d, C %d, D %d", p.a.batch, p.b.batch,
         p.c.batch, p.d.batch);
  }
  // Apart are batches that lie behind each other, or side by side within a line's leading
  // dimension.
  const Layout& d = p.d;
  const auto length = static_cast<std::int64_t>(line(d));
  const auto whole = static_cast<std::int64_t>(lines(d) - 1) * d.ld + length;
  const bool side_by_side = d.stride >= length && d.stride * (d.batch - 1) + length <= d.ld;
  if (d.batch > 1 && d.stride < whole && !side_by_side) {
    fail("cublasLtMatmul: batches of D overlap: stride %lld, leading dimension %lld, [%llu, %llu]",
         static_cast<long long>(d.stride), static_cast<long long>(d.ld), Bytes{d.rows},
         Bytes{d.cols});
  }
}

void check_epilogue(const Problem& p) {
  constexpr std::uint32_t kKnown[] = {
      CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU,
      CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX,    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
      CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,        CUBLASLT_EPILOGUE_BGRADB};
  const std::uint32_t epilogue = p.op.epilogue;
  if (std::find(std::begin(kKnown), std::end(kKnown), epilogue) == std::end(kKnown)) {
    fail("cublasLtMatmul: epilogue %u is not simulated", epilogue);
  }
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.d.order != CUBLASLT_ORDER_COL) {
    fail("cublasLtMatmul: epilogue %u is simulated for a column-major D alone", epilogue);
  }
  if (uses_aux(epilogue)) {
    if (p.op.aux_ld < p.m() || p.op.aux_ld % 8 != 0 || p.op.aux_stride % 8 != 0) {
      fail(
          "cublasLtMatmul: aux has leading dimension %lld and batch stride %lld, expected "
          "multiples of 8, the first at least the %lld rows of D",
          static_cast<long long>(p.op.aux_ld), static_cast<long long>(p.op.aux_stride),
          static_cast<long long>(p.m()));
    }
    if (p.d.batch > 1 && p.op.aux_stride < p.op.aux_ld * (p.n() - 1) + p.m()) {
      fail("cublasLtMatmul: batches of aux overlap");
    }
  }
  if (writes_bias(epilogue) && p.d.batch > 1 && p.op.bias_stride < bias_length(p)) {
    fail("cublasLtMatmul: batches of the bias gradient overlap");
  }
}

struct Range {
  const char* name;
  std::uintptr_t begin;
  std::uintptr_t end;
};

Range require(const void* pointer, std::size_t bytes, const char* what, const char* name) {
  require_device(pointer, bytes, what);
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  return {name, begin, begin + bytes};
}

void check_apart(const Range& output, const Range& other) {
  if (output.begin < other.end && other.begin < output.end) {
    fail("cublasLtMatmul: %s overlaps %s in memory", output.name, other.name);
  }
}

void check_aligned(const void* pointer, std::uint32_t promised, std::size_t element,
                   const char* name) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::size_t needed = std::max<std::size_t>(promised, element);
  if (address % needed != 0) {
    fail(
        "cublasLtMatmul: misaligned: %s at %p is not a multiple of %zu bytes, which the "
        "algorithm was chosen for",
        name, pointer, needed);
  }
}

void check_algorithm(const Problem& p, const Algorithm& algorithm) {
  if (algorithm.magic != Magic::algorithm) {
    fail("cublasLtMatmul: the algorithm is none of cublasLtMatmulAlgoGetHeuristic's");
  }
  if (algorithm.problem != key(p)) {
    fail(
        "cublasLtMatmul: the algorithm was chosen for another problem: other shapes, leading "
        "dimensions, strides, types or epilogue");
  }
}

Range check_workspace(const Pointers& at, std::uint64_t needed) {
  if (needed > at.workspace_bytes) {
    fail("cublasLtMatmul: workspace too small: got %zu bytes, the algorithm needs %llu",
         at.workspace_bytes, Bytes{needed});
  }
  if (needed == 0) return {"the workspace", 0, 0};
  check_aligned(at.workspace, 16, 16, "the workspace");
  return require(at.workspace, at.workspace_bytes, "cublasLtMatmul: workspace", "the workspace");
}

}  // namespace

std::size_t element_bytes(std::uint32_t type) { return type == CUDA_R_16BF ? 2 : 4; }

std::size_t extent_bytes(const Layout& l) {
  const auto batches =
      static_cast<std::uint64_t>(l.batch - 1) * static_cast<std::uint64_t>(l.stride);
  const auto one = (lines(l) - 1) * static_cast<std::uint64_t>(l.ld) + line(l);
  return (batches + one) * element_bytes(l.type);
}

void check_problem(const Problem& p) {
  check_layout(p.a, "A");
  check_layout(p.b, "B");
  check_layout(p.c, "C");
  check_layout(p.d, "D");
  check_types(p);
  check_shapes(p);
  check_epilogue(p);
}

std::uint64_t key(const Problem& p) {
  constexpr std::uint64_t kOffset = 14695981039346656037U;  // FNV-1a
  constexpr std::uint64_t kPrime = 1099511628211U;
  std::uint64_t hash = kOffset;
  const auto add = [&](const auto&... values) {
    const auto one = [&](const auto& value) {
      unsigned char bytes[sizeof value];
      std::memcpy(bytes, &value, sizeof value);
      for (const unsigned char byte : bytes) hash = (hash ^ byte) * kPrime;
    };
    (one(values), ...);
  };
  const Description& op = p.op;
  add(op.compute, op.scale, op.pointer_mode, op.transa, op.transb, op.transc, op.epilogue,
      op.bias_stride, op.aux_ld, op.aux_stride, op.aux_type, op.bias_type);
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d}) {
    add(l->type, l->order, l->batch, l->rows, l->cols, l->ld, l->stride);
  }
  return hash;
}

void check_pointers(const Problem& p, const Pointers& at, const Algorithm* algorithm) {
  if (algorithm != nullptr) check_algorithm(p, *algorithm);
  const Algorithm any;
  const Algorithm& chosen = algorithm != nullptr ? *algorithm : any;
  const std::size_t element = element_bytes(p.d.type);
  const Range a = require(at.a, extent_bytes(p.a), "cublasLtMatmul: A", "A");
  const Range b = require(at.b, extent_bytes(p.b), "cublasLtMatmul: B", "B");
  const Range d = require(at.d, extent_bytes(p.d), "cublasLtMatmul: D", "D");
  check_aligned(at.a, chosen.alignment[0], element_bytes(p.a.type), "A");
  check_aligned(at.b, chosen.alignment[1], element_bytes(p.b.type), "B");
  check_aligned(at.d, chosen.alignment[3], element, "D");
  check_apart(d, a);
  check_apart(d, b);
  if (at.c != nullptr) {  // may be null where beta is 0
    const Range c = require(at.c, extent_bytes(p.c), "cublasLtMatmul: C", "C");
    check_aligned(at.c, chosen.alignment[2], element, "C");
    const bool in_place = at.c == at.d && p.c.ld == p.d.ld && p.c.order == p.d.order &&
                          (p.c.stride == p.d.stride || p.d.batch == 1);
    if (!in_place) check_apart(d, c);
  }
  const Range workspace = check_workspace(at, chosen.workspace);
  for (const Range& other : {a, b, d}) check_apart(workspace, other);
  const auto batches = static_cast<std::uint64_t>(p.d.batch - 1);
  Range bias{"the bias", 0, 0};
  if (uses_bias(p.op.epilogue)) {
    if (p.op.bias == nullptr) {
      fail("cublasLtMatmul: epilogue %u without a bias pointer", p.op.epilogue);
    }
    const auto elements = batches * static_cast<std::uint64_t>(p.op.bias_stride) +
                          static_cast<std::uint64_t>(bias_length(p));
    bias = require(p.op.bias, elements * element, "cublasLtMatmul: bias", "the bias");
    check_aligned(p.op.bias, chosen.bias_alignment, element, "the bias");
    check_apart(d, bias);
    check_apart(workspace, bias);
    if (writes_bias(p.op.epilogue)) {
      check_apart(bias, a);
      check_apart(bias, b);
    }
  }
  if (uses_aux(p.op.epilogue)) {
    if (p.op.aux == nullptr) {
      fail("cublasLtMatmul: epilogue %u without an aux pointer", p.op.epilogue);
    }
    const auto elements = batches * static_cast<std::uint64_t>(p.op.aux_stride) +
                          static_cast<std::uint64_t>(p.op.aux_ld * (p.n() - 1) + p.m());
    const Range aux = require(p.op.aux, elements * element, "cublasLtMatmul: aux", "aux");
    constexpr std::uint32_t kWholeVector = 16;  // bytes that a thread loads or stores at once
    check_aligned(p.op.aux, std::max(chosen.aux_alignment, kWholeVector), element, "aux");
    check_apart(d, aux);
    check_apart(workspace, aux);
    if (writes_aux(p.op.epilogue) || writes_bias(p.op.epilogue)) check_apart(aux, bias);
    if (writes_aux(p.op.epilogue)) {
      check_apart(aux, a);
      check_apart(aux, b);
    }
  }
}

}  // namespace sim::blas_lt
