// duet generate: continues a prompt, token by token as they are drawn.
#include <algorithm>
#include <exception>

#include "runtime/cpu/openmp.h"
#include "runtime/error.h"
#include "runtime/memory_advice.h"
#include "tools/checkpoint_model.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/sampler.h"

namespace duet {
namespace {

// Generates beyond the context: when it is full, the newest half of the text is the next prompt.
void generate_text(const CheckpointModel& opened, std::vector<std::int32_t> text,
                   SampleOptions options, bool slide) {
  const auto stream = [&](std::int32_t id) {
    write_out(opened.tokenizer->decode(std::vector<std::int32_t>{id}));
    return true;
  };
  const auto context = static_cast<std::size_t>(opened.model.config().block_size);
  while (true) {
    if (slide && text.size() >= context) {
      const std::size_t kept = std::max<std::size_t>(context / 2, 1);
      text.erase(text.begin(), text.end() - static_cast<std::ptrdiff_t>(kept));
    }
    const Sample sample = generate(opened.model, text, options, stream);
    if (!slide || !sample.context_full) return;
    check(!sample.tokens.empty(), ErrorKind::usage, "--slide: a context of ", context,
          " token leaves no room to slide");
    text.insert(text.end(), sample.tokens.begin(), sample.tokens.end());
    options.max_new_tokens -= static_cast<std::int64_t>(sample.tokens.size());
    options.drawn += static_cast<std::int64_t>(sample.tokens.size());
  }
}

}  // namespace

int run_generate(const Arguments& arguments) {
  std::string path, prompt, device = "auto";
  SampleOptions options;
  std::int64_t threads = 0, seed = static_cast<std::int64_t>(options.seed);
  bool slide = false;
  Flags flags("duet generate", "--checkpoint DIR --prompt TEXT",
              "continues the prompt; the same seed gives the same text");
  flags.required_text("checkpoint", &path, "DIR",
                      "a run (its newest good checkpoint) or one of them");
  flags.required_text("prompt", &prompt, "TEXT", "the beginning");
  flags.integer("max_new_tokens", &options.max_new_tokens, 0, std::int64_t{1} << 31,
                "tokens to add");
  flags.number("temperature", &options.temperature, 0, 1000, "0: always the likeliest");
  flags.integer("top_k", &options.top_k, 0, std::int64_t{1} << 31, "likeliest tokens kept; 0: all");
  flags.number("top_p", &options.top_p, 1e-9, 1, "probability kept, likeliest first");
  flags.integer("seed", &seed, 0, INT64_MAX, "of the draws");
  flags.toggle("slide", &slide, "go on when the context is full, with its newest half");
  flags.integer("threads", &threads, 0, kMostThreads, "CPU threads; 0: what the process may use");
  flags.text("device", &device, "auto", "auto, cpu or cuda");
  if (!flags.parse(arguments)) return 0;
  options.seed = static_cast<std::uint64_t>(seed);

  const CheckpointModel opened = open_model(path, threads, device);
  const std::vector<std::int32_t> ids = opened.tokenizer->encode(prompt);
  const std::int64_t context = opened.model.config().block_size;
  check(slide || static_cast<std::int64_t>(ids.size()) <= context, ErrorKind::usage,
        "--prompt: got ", ids.size(), " tokens, expected at most the model's context of ", context,
        "; shorten it, or use --slide to keep its end");
  set_memory_advice(
      concat("the weights, the keys and values of ", context, " tokens and a prompt of ",
             ids.size(), " do not fit here: ", ids.size() > 1 ? "try a shorter --prompt, or " : "",
             elsewhere(opened.model.device())));
  const std::int64_t room = context - static_cast<std::int64_t>(ids.size());
  if (!slide && options.max_new_tokens > room) {
    note(concat("the context is ", context, ": stops after ", room, " of ", options.max_new_tokens,
                " tokens; --slide goes on"));
  }
  write_out(prompt);
  try {
    generate_text(opened, ids, options, slide);
  } catch (const std::exception&) {
    write_out("\n");  // the error's line is its own
    throw;
  }
  write_out("\n");
  return 0;
}

}  // namespace duet
