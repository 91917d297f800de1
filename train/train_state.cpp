#include "train/train_state.h"

#include <cmath>
#include <utility>

#include "models/enum_names.h"
#include "train/json_fields.h"

namespace duet {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kFormatVersion = 1;

// The one list of the configuration's fields: written, read and compared by it.
void visit_fields(auto& config, auto&& f) {
  f("family", config.family);
  f("n_layer", config.n_layer);
  f("n_head", config.n_head);
  f("n_kv_head", config.n_kv_head);
  f("n_embd", config.n_embd);
  f("d_ff", config.d_ff);
  f("block_size", config.block_size);
  f("vocab_size", config.vocab_size);
  f("valid_vocab", config.valid_vocab);
  f("dropout", config.dropout);
  f("bias", config.bias);
  f("activation", config.activation);
  f("scoring", config.scoring);
  f("coupling", config.coupling);
  f("coupling_steps", config.coupling_steps);
  f("coupling_hidden", config.coupling_hidden);
  f("coupling_sharing", config.coupling_sharing);
  f("coupling_dt", config.coupling_dt);
  f("coupling_dt_mode", config.coupling_dt_mode);
  f("coupling_rope", config.coupling_rope);
  f("coupling_layers", config.coupling_layers);
  f("coupling_run_back", config.coupling_run_back);
  f("recompute", config.recompute);
}

// Fields that older checkpoints do not have.
bool added_later(std::string_view key) { return key == "scoring" || key == "coupling_run_back"; }

Json to_tree(const ModelConfig& config) {
  Json tree = Json::object();
  visit_fields(config, [&]<class T>(const char* key, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      tree[key] = enum_name(value);
    } else {
      tree[key] = value;
    }
  });
  return tree;
}

ModelConfig parse_model(const JsonFields& fields) {
  ModelConfig config;
  visit_fields(config, [&]<class T>(const char* key, T& value) {
    if (added_later(key) && !fields.has(key)) return;  // the default is what the run had
    if constexpr (std::is_enum_v<T>) {
      const auto known = enum_from_name<T>(fields.text(key));
      if (!known) fields.fail(key, fields.at(key), accepted_names<T>());
      value = *known;
    } else if constexpr (std::is_same_v<T, bool>) {
      value = fields.boolean(key);
    } else if constexpr (std::is_same_v<T, double>) {
      value = fields.number(key);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      value = fields.integer(key, 0);
    } else {
      const Json& list = fields.at(key);
      bool fits = list.is_array();
      for (const Json& layer : list) fits = fits && layer.is_number_unsigned();
      if (!fits) fields.fail(key, list, "a list of layer numbers");
      value = list.template get<T>();
    }
  });
  return config;
}

std::map<std::string, std::string> parse_settings(const JsonFields& fields) {
  std::map<std::string, std::string> settings;
  for (const auto& [key, value] : fields.items()) settings[key] = fields.text(key.c_str());
  return settings;
}

Json to_tree(const FileIdentity& file) {
  return {{"path", file.path}, {"bytes", file.bytes}, {"xxh3", file.hash}};
}

FileIdentity parse_identity(const JsonFields& fields) {
  return {fields.text("path"), fields.bytes("bytes"), fields.text("xxh3")};
}

}  // namespace

std::string to_json(const TrainState& s) {
  Json tree = {
      {"format", "duet-state"},
      {"format_version", kFormatVersion},
      {"run_id", s.run_id},
      {"step", s.step},
      {"tokens", s.tokens},
      {"skipped_steps", s.skipped_steps},
      {"skipped_in_row", s.skipped_in_row},
      {"last_eval_step", s.last_eval_step},
      {"best", {{"step", s.best_step}, {"loss", s.best_step < 0 ? Json() : Json(s.best_loss)}}},
      {"loader", {{"samples", s.samples}, {"windows_per_epoch", s.windows_per_epoch}}},
      {"seed", s.seed},
      {"threads", s.threads},
      {"device", s.device},
      {"dtype", s.dtype},
      {"optimizer",
       {{"name", "adamw"},
        {"steps", s.optimizer_steps},
        {"beta1", s.adamw.beta1},
        {"beta2", s.adamw.beta2},
        {"eps", s.adamw.eps},
        {"weight_decay", s.adamw.weight_decay}}},
      {"model", to_tree(s.model)},
      {"tokenizer", {{"name", s.tokenizer}, {"xxh3", s.tokenizer_hash}}},
      {"data", to_tree(s.data)},
      {"val_data", to_tree(s.val_data)}};
  if (!s.settings.empty()) tree["settings"] = s.settings;
  // A path may hold bytes that are no UTF-8; they are replaced rather than refused.
  return tree.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

TrainState parse_state(const std::string& json, const std::string& path) {
  const Json tree = parse_json(json, path);
  const JsonFields fields(tree, path);
  if (fields.text("format") != "duet-state") {
    fields.fail("format", fields.at("format"), "\"duet-state\"");
  }
  fields.check_version(kFormatVersion);
  TrainState s;
  s.run_id = fields.word("run_id");
  if (fields.has("settings")) s.settings = parse_settings(fields.object("settings"));
  s.step = fields.integer("step", 0, kMostSteps);
  s.tokens = fields.integer("tokens", 0);
  s.skipped_steps = fields.integer("skipped_steps", 0, s.step);
  s.skipped_in_row = fields.integer("skipped_in_row", 0, s.skipped_steps);
  s.last_eval_step = fields.integer("last_eval_step", -1, s.step);
  const JsonFields best = fields.object("best");
  s.best_step = best.integer("step", -1, s.step);
  s.best_loss = s.best_step < 0 ? 0 : best.number("loss");
  const JsonFields loader = fields.object("loader");
  s.samples = loader.integer("samples", s.step);
  s.windows_per_epoch = loader.integer("windows_per_epoch", 1);
  s.seed = fields.seed("seed");
  s.threads = fields.integer("threads", 0, std::numeric_limits<std::int32_t>::max());
  if (fields.has("device")) s.device = fields.text("device");  // older ones were of the cpu
  s.dtype = fields.text("dtype");
  const JsonFields optimizer = fields.object("optimizer");
  if (optimizer.text("name") != "adamw") {
    optimizer.fail("name", optimizer.at("name"), "\"adamw\", the only optimizer of this version");
  }
  s.optimizer_steps = optimizer.integer("steps", 0, s.step);
  s.adamw = {optimizer.number("beta1", 0, 1), optimizer.number("beta2", 0, 1),
             optimizer.number("eps", 0), optimizer.number("weight_decay", 0)};
  s.model = parse_model(fields.object("model"));
  try {
    validate(s.model);
  } catch (const Error& e) {
    throw Error(ErrorKind::file, concat(path, ": its model does not fit together: ", e.what()));
  }
  const JsonFields tokenizer = fields.object("tokenizer");
  s.tokenizer = tokenizer.text("name");
  s.tokenizer_hash = tokenizer.text("xxh3");
  s.data = parse_identity(fields.object("data"));
  s.val_data = parse_identity(fields.object("val_data"));
  return s;
}

std::vector<std::string> differences(const ModelConfig& a, const ModelConfig& b) {
  const auto spelled_out = [](ModelConfig config) {
    config.n_kv_head = config.kv_heads();
    config.d_ff = config.ff_width();
    return to_tree(config);
  };
  const Json left = spelled_out(a);
  const Json right = spelled_out(b);
  std::vector<std::string> lines;
  for (const auto& [key, value] : left.items()) {
    if (value != right[key]) lines.push_back(concat(key, ": ", value, " and ", right[key]));
  }
  return lines;
}

}  // namespace duet
