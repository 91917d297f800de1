// duet op list: every op of ops/ops.h, and what was found out about it by running it.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/error.h"
#include "tests/ops/op_facts.h"
#include "tools/flags.h"
#include "tools/op_commands.h"
#include "tools/output.h"

namespace duet {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += word;
    text += ' ';
  }
  return text;
}

std::string dtypes_on(std::string_view device, const test::OpFacts& op) {
  for (const auto& found : op.devices) {
    if (found.device == device) return joined(found.dtypes);
  }
  return "";
}

}  // namespace

int run_op_list(const Arguments& arguments) {
  Flags flags("duet op list", "",
              "every op of ops/ops.h: found out by running it here, not looked up in a table");
  if (!flags.parse(arguments)) return 0;

  std::vector<test::OpFacts> ops;
  std::string slow;
  bool on_cuda = false;
  for (const std::string& op : test::op_names()) {
    ops.push_back(test::facts_of(op));
    if (ops.back().by_reference) slow += concat(' ', op);
    on_cuda = on_cuda || !dtypes_on("cuda", ops.back()).empty();
  }
  std::vector<std::vector<std::string>> rows{{"op", "devices", "dtypes (cpu)", "dtypes (cuda)",
                                              "gradient", "2nd", "forward (f32, cpu)",
                                              "backward (f32, cpu)"}};
  for (const test::OpFacts& op : ops) {
    std::vector<std::string> devices;
    for (const auto& found : op.devices) devices.push_back(found.device);
    rows.push_back({op.name, joined(devices), dtypes_on("cpu", op), dtypes_on("cuda", op),
                    op.backward ? "yes" : "no", op.second_order ? "yes" : "no", op.forward_by,
                    op.backward_by});
  }
  if (!on_cuda) {
    for (auto& row : rows) row.erase(row.begin() + 3);  // no GPU here: nothing to tell of it
  }
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  out += fmt::format(
      "\n{} ops. 2nd: second derivatives (create_graph). view: the same memory, no kernel. f64 "
      "runs in plain loops (oracle, gradcheck).{}\n"
      "{}",
      rows.size() - 1,
      on_cuda ? "\nforward, backward: what runs on the cpu; on a GPU products are cublasLt's, the "
                "rest our own."
              : "",
      slow.empty() ? std::string("No op runs one of oneDNN's reference (ref) implementations.\n")
                   : concat("REF: oneDNN's reference loops, far too slow:", slow, "\n"));
  write_out(out);
  return 0;
}

}  // namespace duet
