// duet tokenize: standard input to token ids as one JSON array, or ids back to bytes.
#include "runtime/error.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/json_text.h"
#include "train/text.h"
#include "train/tokenizer.h"

namespace duet {
namespace {

std::vector<std::int32_t> parse_ids(const std::string& text, std::int64_t vocab_size) {
  const nlohmann::json json = try_json(text).value_or(nullptr);
  check(json.is_array(), ErrorKind::file, "standard input: got ", in_quotes(text.substr(0, 40)),
        ", expected one JSON array of ids, such as [72, 105]");
  std::vector<std::int32_t> ids;
  for (const auto& item : json) {
    check(item.is_number_integer() && item >= 0 && item < vocab_size, ErrorKind::file,
          "standard input: entry ", ids.size(), " of the array: got ", in_quotes(item.dump()),
          ", expected an id in [0, ", vocab_size, ")");
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

}  // namespace

int run_tokenize(const Arguments& arguments) {
  std::string name;
  bool decode = false, special = false;
  Flags flags("duet tokenize", "--tokenizer byte < TEXT",
              "standard input to ids, one JSON array on standard output, or back to bytes");
  flags.required_text("tokenizer", &name, "byte|PATH", "byte, or the path of a tokenizer.json");
  flags.toggle("decode", &decode, "ids to bytes");
  flags.toggle("special", &special, "let the text of a special token become its id");
  if (!flags.parse(arguments)) return 0;

  // The byte tokenizer has no special tokens, so `special` changes nothing for it.
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(name);
  const std::string input = read_input();
  if (decode) {
    write_out(tokenizer->decode(parse_ids(input, tokenizer->vocab_size())));
    return 0;
  }
  std::string out = "[";
  for (const std::int32_t id : tokenizer->encode(input)) {
    if (out.size() > 1) out += ", ";
    out += std::to_string(id);
  }
  write_out(out + "]\n");
  return 0;
}

}  // namespace duet
