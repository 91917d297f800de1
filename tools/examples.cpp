// One table, so that a test can paste every line. The lines share their names: what those of train
// write, the others read.
#include "tools/examples.h"

#include <array>
#include <vector>

#include "runtime/error.h"
#include "train/command_line.h"

namespace duet {
namespace {

struct Examples {
  std::string_view command;
  std::vector<std::string_view> lines;  // without the program's name
};

const std::vector<Examples>& table() {
  static const std::vector<Examples> all{
      {"duet",
       {"train --preset tiny --data book.txt --out_dir runs/book",
        "generate --checkpoint runs/book --prompt 'The '", "doctor"}},
      {"duet train",
       {"train --preset tiny --data book.txt --out_dir runs/book",
        "train --resume --out_dir runs/book --max_iters 3000",
        "train --task mqar --out_dir runs/mqar"}},
      {"duet eval",
       {"eval --checkpoint runs/book --data book.txt --diagnostics",
        "eval --checkpoint runs/mqar"}},
      {"duet generate", {"generate --checkpoint runs/book --prompt 'The ' --slide"}},
      {"duet inspect", {"inspect runs/book"}},
      {"duet tokenize",
       {"tokenize --tokenizer byte < book.txt > ids.json",
        "tokenize --tokenizer byte --decode < ids.json"}},
      {"duet profile",
       {"profile --preset small --html profile.html", "profile --plan --preset 455m --batch_size 8",
        "profile --fit 16GiB --preset 150m"}},
      {"duet bench train", {"bench train --preset tiny --against coupling=none"}},
      {"duet lab",
       {"lab compare tools/experiments/mqar_easy.toml --jobs 2", "lab report runs/mqar_easy"}},
      {"duet lab compare", {"lab compare tools/experiments/mqar_easy.toml --jobs 2"}},
      {"duet lab report", {"lab report runs/mqar_easy"}},
      {"duet op", {"op list", "op check silu"}},
      {"duet op list", {"op list"}},
      {"duet op check", {"op check silu", "op check --row silu --seed 7"}},
      {"duet op new", {"op new softsign --pointwise", "op new center_rows --kernels"}},
      {"duet presets", {"presets", "presets --json"}},
      {"duet doctor", {"doctor"}},
  };
  return all;
}

}  // namespace

std::string examples(std::string_view command) {
  for (const Examples& row : table()) {
    if (row.command != command) continue;
    std::string out = row.lines.size() == 1 ? "\nexample:\n" : "\nexamples:\n";
    for (const std::string_view line : row.lines) out += concat("  ", advised({}), " ", line, "\n");
    return out;
  }
  throw Error(ErrorKind::internal,
              concat(command, ": no examples; add them to tools/examples.cpp"));
}

}  // namespace duet
