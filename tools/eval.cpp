// duet eval: loss, perplexity and bits per byte of a checkpoint on a text, and how they were taken.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/cpu/openmp.h"
#include "runtime/error.h"
#include "runtime/memory_advice.h"
#include "runtime/nan_sign.h"
#include "runtime/printable.h"
#include "tools/checkpoint_model.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/diagnostics.h"
#include "train/evaluate.h"
#include "train/mqar.h"
#include "train/text.h"
#include "train/text_file.h"

namespace duet {
namespace {

nlohmann::ordered_json to_json(const Diagnostics& d) {
  nlohmann::ordered_json out;
  for (const auto& [name, table] : d.tables()) out[name] = *table;
  out["residual/collapse"] = d.collapse;
  out["residual/cosine"] = d.cosine;
  if (!d.lambda.empty()) out["diff/lambda"] = d.lambda;
  return out;
}

double mean(const std::vector<double>& heads) {
  double sum = 0;
  for (const double h : heads) sum += h;
  return without_nan_sign(sum / static_cast<double>(heads.size()));
}

// A row per layer: means over its heads.
std::string table_of(const Diagnostics& d, const Tensor& ids) {
  const bool two = !d.entropy_2.empty();
  std::string out = fmt::format(
      "\nattention of {} of {}, mean over heads{}\n"
      "layer    rank  s1 - s2  s2 / s1  entropy  of max    sink{}  collapse  cosine\n",
      counted(ids.size(0), "sequence"), counted(ids.size(1), "token"),
      two ? "; rank and s of the difference of two maps" : "", two ? "  entropy 2  lambda" : "");
  for (std::size_t l = 0; l < d.collapse.size(); ++l) {
    out += fmt::format("{:>5} {:>7.2f} {:>8.4f} {:>8.4f} {:>8.4f} {:>7.4f} {:>7.4f}", l,
                       mean(d.effective_rank[l]), mean(d.gap[l]), mean(d.gap_ratio[l]),
                       mean(d.entropy[l]), mean(d.entropy_norm[l]), mean(d.sink[l]));
    if (two) out += fmt::format(" {:>10.4f} {:>7.4f}", mean(d.entropy_2[l]), mean(d.lambda[l]));
    out += fmt::format(" {:>9.4f} {:>7.4f}\n", without_nan_sign(d.collapse[l]),
                       without_nan_sign(d.cosine[l]));
  }
  return out;
}

// What helps where memory runs out beside the weights.
std::string eval_advice(const Transformer& model, const EvalOptions& options) {
  const std::string other = elsewhere(model.device());
  return options.batch_size > 1
             ? concat("try a smaller --batch_size (it is ", options.batch_size, "), or ", other)
             : concat("the weights and one window of ", model.config().block_size,
                      " tokens do not fit here: ", other);
}

void advise_diagnostics() {
  set_memory_advice("leave out --diagnostics, which keeps whole attention maps");
}

void eval_mqar(const CheckpointModel& opened, const EvalOptions& options,
               std::int64_t diagnosed_sequences, bool json) {
  check(options.stride == 0, ErrorKind::usage, "--stride: got ", options.stride,
        ", expected none: task mqar has examples, not a text");
  const MqarTask& task = *opened.tokenizer->mqar();
  const TrainState& state = opened.checkpoint.state();
  set_memory_advice(eval_advice(opened.model, options));
  const EvalResult result = evaluate_mqar(opened.model, task, state.seed, options);
  std::optional<Diagnostics> diagnostics;
  Tensor sample;
  if (diagnosed_sequences > 0) {
    advise_diagnostics();
    sample = mqar_test_ids(task, state.seed, diagnosed_sequences);
    diagnostics = diagnose(opened.model, sample);
  }
  if (json) {
    nlohmann::ordered_json out;
    out["checkpoint"] = opened.checkpoint.directory();
    out["step"] = state.step;
    out["loss"] = result.loss;
    out["ppl"] = result.ppl;
    out["accuracy"] = result.accuracy.value();
    out["labels"] = result.tokens;
    out["examples"] = result.windows;
    if (diagnostics) out["diagnostics"] = to_json(*diagnostics);
    write_out(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return;
  }
  write_out(fmt::format("checkpoint     {} (step {})\n"
                        "task           mqar: {} pairs in {} tokens, vocabulary {}\n"
                        "protocol       {} test examples of seed {}, {} labels\n"
                        "loss           {:.4f} nats per label\n"
                        "accuracy       {:.4f} of the labels\n",
                        printable(opened.checkpoint.directory(), 4096), state.step, task.pairs,
                        task.length, format_count(task.vocab_size), format_count(result.windows),
                        state.seed, format_count(result.tokens), result.loss, *result.accuracy) +
            (diagnostics ? table_of(*diagnostics, sample) : ""));
}

}  // namespace

int run_eval(const Arguments& arguments) {
  std::string path, data, device = "auto";
  EvalOptions options;
  std::int64_t threads = 0;
  bool json = false, diagnose_maps = false;
  std::int64_t sequences = 8;
  Flags flags("duet eval", "--checkpoint DIR --data FILE",
              "loss, perplexity per token and per word, bits per byte");
  flags.required_text("checkpoint", &path, "DIR",
                      "a run (its newest good checkpoint) or one of them");
  flags.text("data", &data, "FILE", "the text; task mqar has none");
  flags.integer("stride", &options.stride, 0, std::int64_t{1} << 20,
                "targets that count per window; 0: block_size, windows side by side");
  flags.integer("batch_size", &options.batch_size, 1, std::int64_t{1} << 20, "windows at once");
  flags.integer("threads", &threads, 0, kMostThreads, "CPU threads; 0: what the process may use");
  flags.text("device", &device, "auto", "auto, cpu or cuda");
  flags.toggle("diagnostics", &diagnose_maps,
               "rank, entropy, gap and sink of the attention maps; collapse of the stream");
  flags.integer("sequences", &sequences, 1, 4096, "sequences that --diagnostics measures");
  flags.toggle("json", &json, "one JSON object instead of lines");
  if (!flags.parse(arguments)) return 0;

  std::shared_ptr<const TextFile> text;
  if (!data.empty()) text = std::make_shared<const TextFile>(data, /*strict_utf8=*/false);
  const CheckpointModel opened = open_model(path, threads, device);
  if (opened.tokenizer->mqar() != nullptr) {
    check(data.empty(), ErrorKind::usage, "--data: got ", in_quotes(data),
          ", expected none: the model was trained on task mqar, which makes its own examples");
    eval_mqar(opened, options, diagnose_maps ? sequences : 0, json);
    return 0;
  }
  check(!data.empty(), ErrorKind::usage, "duet eval: --data is missing; give --data FILE");
  const std::int64_t block = opened.model.config().block_size;
  check(options.stride <= block, ErrorKind::usage, "--stride: got ", options.stride,
        ", expected at most the model's block_size, ", block);
  const TextTokens part(text, 0, text->size());
  check(part.size() >= 2, ErrorKind::file, printable(data), ": got ", part.size(),
        " tokens, expected at least 2: a loss needs a token and its next");
  set_memory_advice(eval_advice(opened.model, options));
  const EvalResult result = evaluate(opened.model, part, options);
  const std::int64_t words = count_words(*text);
  const double ppl_word = perplexity_per_word(result, words);

  std::optional<Diagnostics> diagnostics;
  Tensor sample;
  if (diagnose_maps) {
    advise_diagnostics();
    sample = sample_sequences(part, block, sequences);
    diagnostics = diagnose(opened.model, sample);
  }
  if (json) {
    nlohmann::ordered_json out;
    out["checkpoint"] = opened.checkpoint.directory();
    out["step"] = opened.checkpoint.state().step;
    out["loss"] = result.loss;
    out["ppl"] = result.ppl;
    out["ppl_word"] = ppl_word;
    out["bpb"] = result.bits_per_byte;
    out["tokens"] = result.tokens;
    out["windows"] = result.windows;
    out["window"] = result.window;
    out["stride"] = result.stride;
    if (diagnostics) out["diagnostics"] = to_json(*diagnostics);
    write_out(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return 0;
  }
  write_out(fmt::format("checkpoint     {} (step {})\n"
                        "data           {}: {} bytes, {} tokens, {} words\n"
                        "protocol       window {}, stride {}, {} {}, {} targets\n"
                        "loss           {:.4f} nats per token\n"
                        "ppl per token  {:.3f}\n"
                        "ppl per word   {:.5g}\n"
                        "bits per byte  {:.4f}\n",
                        printable(opened.checkpoint.directory(), 4096),
                        opened.checkpoint.state().step, printable(data, 4096),
                        format_count(part.bytes()), format_count(part.size()), format_count(words),
                        result.window, result.stride, format_count(result.windows),
                        plural(result.windows, "window"), format_count(result.tokens), result.loss,
                        result.ppl, ppl_word, result.bits_per_byte) +
            (diagnostics ? table_of(*diagnostics, sample) : ""));
  return 0;
}

}  // namespace duet
