// The task of a run without text, and its tokenizer: that knows vocabulary and task, and refuses
// text.
#include "train/json_fields.h"
#include "train/mqar.h"

namespace duet {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 31;

class MqarTokenizer final : public Tokenizer {
 public:
  explicit MqarTokenizer(const MqarTask& task) : task_(task) {}

  std::string_view name() const override { return "mqar"; }
  std::int64_t vocab_size() const override { return task_.vocab_size; }
  const MqarTask* mqar() const override { return &task_; }

  std::vector<std::int32_t> encode(std::string_view) const override { refuse(); }
  std::string decode(std::span<const std::int32_t>) const override { refuse(); }

  std::string json() const override {
    const nlohmann::ordered_json tree = {{"version", "1.0"},
                                         {"model",
                                          {{"type", "mqar"},
                                           {"vocab_size", task_.vocab_size},
                                           {"length", task_.length},
                                           {"pairs", task_.pairs},
                                           {"random_non_queries", task_.random_non_queries},
                                           {"examples", task_.examples}}}};
    return tree.dump(1) + "\n";
  }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorKind::usage,
                "task mqar: its ids are keys and values, not text: there is nothing to encode, "
                "decode or generate; the command eval tells the accuracy");
  }

  MqarTask task_;
};

}  // namespace

MqarTask mqar_task(const RunConfig& config) {
  MqarTask task;
  if (config.model.vocab_size != 0) task.vocab_size = config.model.vocab_size;
  task.length = config.model.block_size;
  task.pairs = config.mqar_pairs;
  task.random_non_queries = config.mqar_random_non_queries;
  task.examples = config.mqar_examples;
  return task;
}

std::vector<Setting> mqar_defaults() {
  constexpr std::pair<const char*, const char*> kDefaults[] = {
      {"family", "gpt2"},    {"n_head", "1"},           {"block_size", "8"},
      {"vocab_size", "64"},  {"mqar_pairs", "2"},       {"batch_size", "128"},
      {"max_iters", "4000"}, {"learning_rate", "3e-3"}, {"schedule", "constant"},
  };
  std::vector<Setting> out;
  for (const auto& [key, value] : kDefaults) {
    out.push_back({key, FlagText{value}, concat("task mqar: ", key)});
  }
  return out;
}

void validate(const MqarTask& task) {
  check(task.length >= 4 && task.length % 2 == 0, ErrorKind::usage, "block_size: got ", task.length,
        ", expected an even number of 4 or more for task mqar");
  check(task.pairs >= 1 && task.pairs <= task.length / 4, ErrorKind::usage, "mqar_pairs: got ",
        task.pairs, ", expected 1 to block_size / 4 (", task.length / 4, ")");
  check(task.vocab_size > task.length, ErrorKind::usage, "vocab_size: got ", task.vocab_size,
        ", expected more than block_size (", task.length, ") for task mqar");
}

std::unique_ptr<Tokenizer> make_mqar_tokenizer(const MqarTask& task) {
  return std::make_unique<MqarTokenizer>(task);
}

std::unique_ptr<Tokenizer> parse_mqar_tokenizer(std::string_view json, const std::string& path) {
  const nlohmann::json tree = parse_json(json, path);
  const JsonFields fields(tree, path);
  const JsonFields model = fields.object("model");
  MqarTask task;
  task.vocab_size = model.integer("vocab_size", 1, kMost - 1);
  task.length = model.integer("length", 1, kMost);
  task.pairs = model.integer("pairs", 1, kMost);
  task.random_non_queries = model.boolean("random_non_queries");
  task.examples = model.integer("examples", 0);
  try {
    validate(task);
  } catch (const Error& e) {
    throw Error(ErrorKind::file, concat(path, ": its task does not fit together: ", e.what()));
  }
  return make_mqar_tokenizer(task);
}

}  // namespace duet
