// The tokenizer of a run without text: it knows the vocabulary and the task, and refuses text.
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

std::unique_ptr<Tokenizer> make_mqar_tokenizer(const MqarTask& task) {
  return std::make_unique<MqarTokenizer>(task);
}

std::unique_ptr<Tokenizer> parse_mqar_tokenizer(std::string_view json, const std::string& path) {
  const nlohmann::json tree = parse_json(std::string(json), path);
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
