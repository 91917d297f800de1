#include "train/foreign_weights.h"

#include <array>
#include <string_view>

#include "runtime/printable.h"
#include "train/command_line.h"

namespace duet {
namespace {

struct Layout {
  std::string_view part;  // of a tensor's name
  std::string_view what;
};

constexpr std::array kLayouts{
    Layout{".attn.c_attn.", "GPT-2 weights, Hugging Face layout"},
    Layout{".self_attn.q_proj.", "LLaMA-like weights, Hugging Face layout"},
    Layout{".attention.wq.", "LLaMA weights, Meta's layout"},
    Layout{".attention.query_key_value.", "GPT-NeoX weights, Hugging Face layout"},
    Layout{".attention.self.query.", "BERT weights, Hugging Face layout"},
};

}  // namespace

void refuse_foreign(const SafetensorsFile& file) {
  for (const std::string& name : file.names()) {
    for (const Layout& layout : kLayouts) {
      check(name.find(layout.part) == std::string::npos, ErrorKind::file,
            printable(file.path(), 400), ": these look like ", layout.what, ": got a tensor ",
            printable(name),
            ", expected names such as blocks.0.attn.q_proj.weight; importing them is not supported "
            "yet (",
            advised({"inspect", file.path()}), " lists what it holds)");
    }
  }
}

}  // namespace duet
