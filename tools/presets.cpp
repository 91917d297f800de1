// duet presets: the named models with their sizes, counted here.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/enum_names.h"
#include "models/flops.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/text.h"
#include "train/tokenizer.h"

namespace duet {
namespace {

struct Row {
  std::string_view name;
  ModelConfig model;
  std::int64_t parameters = 0, parameters_on_bytes = 0;
};

std::vector<Row> rows() {
  const std::int64_t bytes = make_byte_tokenizer()->vocab_size();
  std::vector<Row> out;
  for (const std::string_view name : preset_names()) {
    const ModelConfig model = preset(name, preset_family(name));
    ModelConfig on_bytes = model;
    on_bytes.vocab_size = bytes;
    out.push_back({name, model, parameters_of(model), parameters_of(on_bytes)});
  }
  return out;
}

std::string json_of(const std::vector<Row>& rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    const ModelConfig& m = row.model;
    out.push_back({{"preset", row.name},
                   {"family", enum_name(m.family)},
                   {"n_layer", m.n_layer},
                   {"n_embd", m.n_embd},
                   {"n_head", m.n_head},
                   {"n_kv_head", m.kv_heads()},
                   {"d_ff", m.ff_width()},
                   {"block_size", m.block_size},
                   {"vocab_size", m.vocab_size},
                   {"parameters", row.parameters},
                   {"parameters_on_bytes", row.parameters_on_bytes},
                   {"coupling", enum_name(m.coupling)}});
  }
  return out.dump(2) + "\n";
}

// 80 columns wide.
std::string table_of(const std::vector<Row>& rows) {
  constexpr const char* kLine =
      "{:<5} {:<6} {:>5} {:>5} {:>5} {:>4} {:>5} {:>5} {:>11} {:>11} {}\n";
  std::string out = fmt::format(kLine, "name", "family", "depth", "width", "heads", "d_ff", "block",
                                "vocab", "parameters", "on bytes", "coupling");
  for (const Row& row : rows) {
    const ModelConfig& m = row.model;
    out += fmt::format(kLine, row.name, enum_name(m.family), m.n_layer, m.n_embd,
                       fmt::format("{}/{}", m.n_head, m.kv_heads()), m.ff_width(), m.block_size,
                       m.vocab_size, format_count(row.parameters),
                       format_count(row.parameters_on_bytes), enum_name(m.coupling));
  }
  return out;
}

}  // namespace

int run_presets(const Arguments& arguments) {
  bool json = false;
  Flags flags("duet presets", "", "the named models with their sizes, for --preset");
  flags.toggle("json", &json, "a JSON list instead of a table");
  if (!flags.parse(arguments)) return 0;
  const std::vector<Row> all = rows();
  if (json) {
    write_out(json_of(all));
    return 0;
  }
  write_out(table_of(all) +
            "\nheads: of queries, and of keys and values. vocab: the preset's own, which\n"
            "profile and bench take; a run on a text takes its tokenizer's, 256 for bytes.\n"
            "coupling: the default of the family; the parameters are those with it.\n");
  return 0;
}

}  // namespace duet
