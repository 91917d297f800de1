// Tokenizer: bytes to ids and back. The byte tokenizer is the only one so far: id = byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace duet {

struct RunConfig;  // train/run_config.h
struct MqarTask;   // train/mqar.h

class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;  // "byte"
  virtual std::int64_t vocab_size() const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view bytes) const = 0;
  // The exact bytes. Throws Error(index) for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // What tokenizer.json holds, in the layout of Hugging Face's tokenizers.
  virtual std::string json() const = 0;
  // The task whose ids these are, if they are no text.
  virtual const MqarTask* mqar() const { return nullptr; }
  std::string hash() const;  // XXH3-128 of json(), hexadecimal
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();
// From the text of a tokenizer.json; `path` is named in errors. Throws Error(file) for anything
// malformed or not supported, by name.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& path);
// "byte", or the path of a tokenizer.json.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name_or_path);
// What a run begins with: of its text, or of its task.
std::unique_ptr<Tokenizer> run_tokenizer(const RunConfig& config);

}  // namespace duet
