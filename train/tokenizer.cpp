// The byte tokenizer, written as a byte-level BPE without merges, so that Hugging Face's tokenizers
// reads it too. There each byte is spelled by one character: printable Latin-1 bytes by themselves,
// the other 68 by the code points from 256 on, in order (GPT-2's table).
#include "train/tokenizer.h"

#include <array>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "train/json_text.h"
#include "train/mqar.h"

namespace duet {
namespace {

constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kMaxTokenizerBytes = 64 << 20;

// UTF-8 of the character that spells each byte.
std::array<std::string, kBytes> byte_spellings() {
  std::array<std::string, kBytes> spellings;
  unsigned next = 256;
  for (unsigned b = 0; b < kBytes; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    const unsigned code = printable ? b : next++;
    if (code < 0x80) {
      spellings[b] = std::string(1, static_cast<char>(code));
    } else {
      spellings[b] = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
  }
  return spellings;
}

class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "byte"; }
  std::int64_t vocab_size() const override { return kBytes; }

  std::vector<std::int32_t> encode(std::string_view bytes) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(bytes.size());
    for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string bytes;
    bytes.reserve(ids.size());
    for (const std::int32_t id : ids) {
      check(id >= 0 && id < kBytes, ErrorKind::index, "decode: id ", id, " is outside [0, ", kBytes,
            "); the ids are of another tokenizer");
      bytes.push_back(static_cast<char>(id));
    }
    return bytes;
  }

  std::string json() const override {
    using Json = nlohmann::ordered_json;
    Json vocab = Json::object();
    const auto spellings = byte_spellings();
    for (std::size_t id = 0; id < spellings.size(); ++id) vocab[spellings[id]] = id;
    const Json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", false}};
    const Json tokenizer = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", Json::array()},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", byte_level},
                            {"post_processor", nullptr},
                            {"decoder", byte_level},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"vocab", vocab},
                              {"merges", Json::array()}}}};
    return tokenizer.dump(1) + "\n";
  }
};

}  // namespace

std::string Tokenizer::hash() const { return hash_bytes(json()); }

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& path) {
  nlohmann::json tree;
  try {
    tree = parse_json(json, path + ": not a tokenizer.json");
  } catch (const Error&) {
    const auto magic = describe_magic(json.substr(0, 512));
    check(!magic, ErrorKind::file, path, ": expected a tokenizer.json, found ",
          magic ? magic->what : "", "; ", magic ? magic->advice : "");
    throw;
  }
  const auto model = tree.is_object() ? tree.find("model") : tree.end();
  check(model != tree.end() && model->is_object(), ErrorKind::file, path,
        ": no object \"model\"; expected a tokenizer.json as Hugging Face's tokenizers writes it");
  const auto type = model->find("type");
  check(type != model->end() && type->is_string(), ErrorKind::file, path,
        ": model.type is missing; expected \"BPE\"");
  if (*type == "mqar") return parse_mqar_tokenizer(json, path);
  check(*type == "BPE", ErrorKind::file, path, ": model.type \"", type->get<std::string>(),
        "\" is not supported; this version has the byte tokenizer (--tokenizer byte)");
  const auto merges = model->find("merges");
  check(merges == model->end() || (merges->is_array() && merges->empty()), ErrorKind::file, path,
        ": a BPE with merges is not supported by this version, only the byte tokenizer; use "
        "--tokenizer byte");
  const auto vocab = model->find("vocab");
  check(vocab != model->end() && vocab->is_object() && vocab->size() == kBytes, ErrorKind::file,
        path, ": model.vocab is not the byte tokenizer's: expected an object of ", kBytes,
        " tokens; use --tokenizer byte");
  const auto spellings = byte_spellings();
  for (std::size_t id = 0; id < spellings.size(); ++id) {
    const auto entry = vocab->find(spellings[id]);
    check(entry != vocab->end() && *entry == id, ErrorKind::file, path,
          ": model.vocab does not map byte ", id, " to id ", id, "; use --tokenizer byte");
  }
  for (const char* stage : {"normalizer", "post_processor"}) {
    check(!tree.contains(stage) || tree[stage].is_null(), ErrorKind::file, path, ": ", stage,
          " is not supported by this version; expected null");
  }
  check(!tree.contains("added_tokens") || tree["added_tokens"].empty(), ErrorKind::file, path,
        ": added_tokens are not supported by this version; expected an empty list");
  return make_byte_tokenizer();
}

std::unique_ptr<Tokenizer> run_tokenizer(const RunConfig& config) {
  if (config.task == TaskKind::mqar) return make_mqar_tokenizer(mqar_task(config));
  return open_tokenizer(config.tokenizer);
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "byte") return make_byte_tokenizer();
  return parse_tokenizer(file_system().read_file(name_or_path, kMaxTokenizerBytes), name_or_path);
}

}  // namespace duet
