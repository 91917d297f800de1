// duet op check: every check of every row of an op, and how fast the op is beside this machine.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>

#include "autograd/node.h"
#include "runtime/allocator.h"
#include "runtime/error.h"
#include "runtime/memory_ops.h"
#include "runtime/printable.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_facts.h"
#include "tests/ops/proof.h"
#include "tools/flags.h"
#include "tools/op_commands.h"
#include "tools/output.h"
#include "train/bench.h"
#include "train/command_line.h"
#include "train/device_choice.h"
#include "train/text.h"

namespace duet {
namespace {

using test::OpCase;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What this machine reaches, the best of a few tries, and each op beside it.
class Bench {
 public:
  // "12.3 GB/s, 85 % of a copy of the same size (14.5 GB/s)", of the first row that says with which
  // inputs.
  std::string line(const std::vector<OpCase>& rows) {
    const auto timed =
        std::find_if(rows.begin(), rows.end(), [](const OpCase& r) { return !r.bench.empty(); });
    if (timed == rows.end()) {
      return concat("not timed: write row.bench = {shapes of the inputs} in the row ",
                    rows.front().name, " (tests/ops/*_cases.cpp)");
    }
    const OpCase& row = *timed;
    measure_ceiling();
    test::Tensors inputs;
    double bytes = row.bench_bytes;
    for (const Shape& shape : row.bench) {
      inputs.push_back(Tensor::full(shape, 0.25, DType::f32, test::test_device()));
      if (row.bench_bytes == 0) bytes += static_cast<double>(inputs.back().nbytes());
    }
    const NoGradGuard no_grad;
    const Allocator& memory = allocator(test::test_device());
    const std::uint64_t allocations = memory.stats().allocations;
    const test::Tensors outputs = row.call(inputs);
    if (memory.stats().allocations == allocations) return view_line(row, inputs, outputs);
    for (const Tensor& y : outputs) {
      if (row.bench_bytes == 0) bytes += static_cast<double>(y.nbytes());
    }
    const double seconds = best_seconds([&] { row.call(inputs); });
    if (row.bench_flops > 0) {
      return fmt::format("{:.1f} GFLOP/s, {:.0f} % of a product", row.bench_flops / seconds * 1e-9,
                         row.bench_flops / seconds / flops_ * 100);
    }
    return beside_a_copy(bytes, seconds);
  }
  // "" where no op was timed.
  std::string ceiling() const {
    if (flops_ == 0) return "";
    return fmt::format(
        "this machine now: a product {:.1f} GFLOP/s, a copy beyond all caches {:.1f} GB/s\n",
        flops_ * 1e-9, bytes_ * 1e-9);
  }

 private:
  // Nothing moves when a view is made; what it costs shows when its output is read.
  static std::string view_line(const OpCase& row, const test::Tensors& inputs,
                               const test::Tensors& outputs) {
    test::Tensors to;
    double bytes = 0;
    for (const Tensor& y : outputs) {
      to.push_back(Tensor::full(y.shape(), 0.5, y.dtype(), y.device()));
      bytes += 2 * static_cast<double>(y.nbytes());
    }
    const double making = best_seconds([&] { row.call(inputs); });
    const double reading = best_seconds([&] {
      for (std::size_t i = 0; i < to.size(); ++i) copy(to[i], outputs[i]);
    });
    return fmt::format("{}; a view made in {:.1f} us, then copied", beside_a_copy(bytes, reading),
                       making * 1e6);
  }
  // A copy of as many bytes, so that the same caches serve both.
  static std::string beside_a_copy(double bytes, double seconds) {
    const Shape half{std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes) / 8)};
    const Tensor from = Tensor::full(half, 0.25, DType::f32, test::test_device());
    Tensor to = Tensor::full(half, 0.5, DType::f32, test::test_device());
    const double copy_seconds = best_seconds([&] { copy(to, from); });
    return fmt::format("{:.1f} GB/s, {:.0f} % of a copy of the same size ({:.1f} GB/s)",
                       bytes / seconds * 1e-9, copy_seconds / seconds * 100,
                       bytes / copy_seconds * 1e-9);
  }
  template <class F>
  static double best_seconds(F&& f) {
    double best = 1e30;
    const auto start = Clock::now();
    for (int n = 0; n < 3 || (n < 1000 && seconds_since(start) < 0.02); ++n) {
      const auto before = Clock::now();
      f();
      synchronize(test::test_device());
      best = std::min(best, seconds_since(before));
    }
    return best;
  }
  void measure_ceiling() {
    if (flops_ > 0) return;
    ModelConfig shape;
    shape.n_embd = 512;
    shape.d_ff = 512;
    Ceiling ceiling(shape, 512, test::test_device());
    for (int n = 0; n < 5; ++n) {
      flops_ = std::max(flops_, ceiling.flops_per_second());
      bytes_ = std::max(bytes_, ceiling.bytes_per_second());
    }
  }

  double flops_ = 0, bytes_ = 0;  // a second
};

struct Request {
  std::string op;
  std::vector<OpCase> rows;
};

// All ops, one op, or one row. An op and its first row may have one name, and then it is the op's.
std::vector<Request> requests(const std::string& name, const std::string& only_row) {
  std::vector<Request> all;
  if (!only_row.empty()) {
    std::vector<std::string_view> rows;
    for (const OpCase& row : test::op_cases()) {
      rows.push_back(row.name);
      if (row.name == only_row) return {{test::op_of(row), {row}}};
    }
    const std::string_view nearest = nearest_name(only_row, rows);
    throw Error(ErrorKind::usage,
                concat("--row: no such row: got ", in_quotes(only_row),
                       nearest.empty() ? std::string() : concat("; did you mean ", nearest, "?")));
  }
  std::vector<std::string_view> names;
  for (const std::string& op : test::op_names()) {
    names.push_back(op);
    if (name.empty() || name == op) all.push_back({op, test::rows_of(op)});
  }
  for (const OpCase& row : test::op_cases()) {
    names.push_back(row.name);
    if (all.empty() && row.name == name) all.push_back({test::op_of(row), {row}});
  }
  if (!all.empty()) return all;
  const std::string_view nearest = nearest_name(name, names);
  throw Error(ErrorKind::usage, concat("duet op check: no such op: got ", in_quotes(name), "; ",
                                       nearest.empty() ? "see " + advised({"op", "list"})
                                                       : concat("did you mean ", nearest, "?")));
}

std::string report(const test::Fault& fault, const std::string& row, std::int64_t seed) {
  std::vector<std::string> again = {"op", "check", "--row", row};
  if (test::test_device() != kCpu) {
    again.insert(again.end(), {"--device", concat(name(test::test_device().type))});
  }
  if (seed != 0) again.insert(again.end(), {"--seed", std::to_string(seed)});
  return fmt::format("  FAULT      {}\n  found by   {}\n  what       {}\n  again      {}\n",
                     fault.kind, fault.check, fault.message, advised(again));
}

// What a proof cannot have proved, because the op does not offer it.
std::string lacks(const std::vector<OpCase>& rows, bool first) {
  const char* what = "";
  for (const OpCase& row : rows) {
    if (!row.differentiable) {
      what = "no gradient";
    } else if (!test::offers_second_order(row)) {
      what = "no second gradient";
    }
  }
  return *what == '\0' || first ? what : concat("; ", what);
}

}  // namespace

int run_op_check(const Arguments& arguments) {
  std::string name, row_name, device = "cpu";
  std::int64_t seed = 0;
  bool bench = true;
  Flags flags("duet op check", "[NAME] [--key value ...]",
              "proves an op, a row of the op table, or all: values against an oracle, gradients\n"
              "  against central differences, layouts, sizes, NaN, determinism, memory, speed");
  flags.positional(&name, "NAME", /*required=*/false);
  flags.text("row", &row_name, "ROW", "one row of the op table instead of NAME");
  flags.text("device", &device, "cpu", "where the ops run");
  flags.integer("seed", &seed, 0, 1'000'000'000, "other random inputs");
  flags.toggle("bench", &bench, "time each op beside what this machine reaches");
  if (!flags.parse(arguments)) return 0;
  device = device_key(device, "--device");
  check(device != "auto", ErrorKind::usage, "--device: got \"auto\", expected cpu or cuda");
  test::use_device(choose_device(device).device);

  test::use_seed(static_cast<std::uint64_t>(seed));
  const std::vector<Request> ops = requests(name, row_name);
  const auto start = Clock::now();
  Bench speed;
  std::int64_t rows = 0, faulty = 0;
  for (const Request& op : ops) {
    write_progress(fmt::format("{:<30} ", op.op));
    const auto began = Clock::now();
    std::string faults;
    for (const OpCase& row : op.rows) {
      const std::optional<test::Fault> fault = test::first_fault(row);
      if (fault) faults += report(*fault, row.name, seed);
      if (fault) ++faulty;
    }
    rows += std::ssize(op.rows);
    std::string speed_line;
    if (bench && faults.empty()) speed_line = speed.line(op.rows);
    write_progress(
        fmt::format("{:<6} {:>2} {:<4} {:>6.2f} s   {}{}\n{}", faults.empty() ? "ok" : "FAULTY",
                    op.rows.size(), op.rows.size() == 1 ? "row" : "rows", seconds_since(began),
                    speed_line, faults.empty() ? lacks(op.rows, speed_line.empty()) : "", faults));
  }
  std::size_t checks = 0;
  std::string skipped;
  for (const test::Check& c : test::all_checks()) {
    if (test::runs_on(c, test::test_device())) {
      ++checks;
    } else {
      skipped += fmt::format("skipped on {}: {} ({})\n", device, c.name, c.cpu_only);
    }
  }
  std::string end =
      fmt::format("\n{}, {}, {} checks each on {}, {:.1f} s: {}\n", counted(std::ssize(ops), "op"),
                  counted(rows, "row"), checks, device, seconds_since(start),
                  faulty == 0 ? "no fault" : concat(counted(faulty, "row"), " faulty"));
  end += skipped;
  end += speed.ceiling();
  if (!test::golden_file_is_there()) {
    end +=
        "golden: skipped: PyTorch's values (tests/golden/ops.safetensors of the source) are not "
        "here\n";
  }
  write_progress(end);
  return faulty == 0 ? 0 : 1;
}

}  // namespace duet
