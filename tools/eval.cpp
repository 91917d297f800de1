// duet eval: loss, perplexity and bits per byte of a checkpoint on a text, and how they were taken.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/error.h"
#include "runtime/printable.h"
#include "tools/checkpoint_model.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/data.h"
#include "train/evaluate.h"
#include "train/text.h"

namespace duet {

int run_eval(const Arguments& arguments) {
  std::string path, data;
  EvalOptions options;
  std::int64_t threads = 0;
  bool json = false;
  Flags flags("duet eval", "--checkpoint DIR --data FILE",
              "loss, perplexity per token and per word, bits per byte");
  flags.required_text("checkpoint", &path, "DIR",
                      "a run (its newest good checkpoint) or one of them");
  flags.required_text("data", &data, "FILE", "the text");
  flags.integer("stride", &options.stride, 0, std::int64_t{1} << 20,
                "targets that count per window; 0: block_size, windows side by side");
  flags.integer("batch_size", &options.batch_size, 1, std::int64_t{1} << 20, "windows at once");
  flags.integer("threads", &threads, 0, 4096, "CPU threads; 0: what the process may use");
  flags.toggle("json", &json, "one JSON object instead of lines");
  if (!flags.parse(arguments)) return 0;

  const std::string text = read_text(data, /*strict_utf8=*/false);
  const CheckpointModel opened = open_model(path, threads);
  const std::int64_t block = opened.model.config().block_size;
  check(options.stride <= block, ErrorKind::usage, "--stride: got ", options.stride,
        ", expected at most the model's block_size, ", block);
  TokenPart part{opened.tokenizer->encode(text), text.size()};
  check(part.tokens.size() >= 2, ErrorKind::file, printable(data), ": got ", part.tokens.size(),
        " tokens, expected at least 2: a loss needs a token and its next");
  const EvalResult result = evaluate(opened.model, part, options);
  const double ppl_word = perplexity_per_word(result, text);

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
    write_out(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return 0;
  }
  const auto count = [](auto n) { return format_count(static_cast<std::int64_t>(n)); };
  write_out(
      fmt::format("checkpoint     {} (step {})\n"
                  "data           {}: {} bytes, {} tokens, {} words\n"
                  "protocol       window {}, stride {}, {} windows, {} targets\n"
                  "loss           {:.4f} nats per token\n"
                  "ppl per token  {:.3f}\n"
                  "ppl per word   {:.5g}\n"
                  "bits per byte  {:.4f}\n",
                  printable(opened.checkpoint.directory(), 4096), opened.checkpoint.state().step,
                  printable(data, 4096), count(text.size()), count(part.tokens.size()),
                  count(count_words(text)), result.window, result.stride, count(result.windows),
                  count(result.tokens), result.loss, result.ppl, ppl_word, result.bits_per_byte));
  return 0;
}

}  // namespace duet
