// What the tests of training share: parameters without a model, a reporter that remembers, a tiny
// run.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/safetensors.h"
#include "runtime/stop.h"
#include "tests/runtime/temp_directory.h"
#include "train/optimizer.h"
#include "train/reporter.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace duet::test {

inline Tensor tensor_of(const std::vector<double>& values, DType dtype, Shape shape = {}) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
  Tensor t = Tensor::empty(shape, dtype);
  visit_floating(dtype, "test", [&]<class T>(TypeTag<T>) {
    T* data = t.mutable_data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) data[i] = static_cast<T>(values[i]);
  });
  return t;
}

struct Parameters {
  std::vector<std::unique_ptr<Parameter>> owners;
  std::vector<NamedTensor> named;

  Parameter& add(const std::string& name, Tensor value, bool decay = true) {
    owners.push_back(
        std::make_unique<Parameter>(std::move(value), std::vector<Parameter::Part>{}, decay));
    Parameter& p = *owners.back();
    named.push_back({name, p.detach(), &p, 0, p.ndim() > 0 ? p.size(0) : 0});
    return p;
  }
};

class Recorder : public Reporter {
 public:
  std::vector<StartReport> starts;
  std::vector<StepReport> steps;
  std::vector<EvalReport> evals;
  std::vector<std::int64_t> saves;
  std::string notices;
  std::function<void(const StepReport&)> after_step;
  std::function<void(const EvalReport&)> after_eval;

  void on_start(const StartReport& r) override { starts.push_back(r); }
  void on_step(const StepReport& r) override {
    steps.push_back(r);
    if (after_step) after_step(r);
  }
  void on_eval(const EvalReport& r) override {
    evals.push_back(r);
    if (after_eval) after_eval(r);
  }
  void on_checkpoint(std::int64_t step, const std::string&) override { saves.push_back(step); }
  void on_notice(const std::string& text) override { notices += text + "\n"; }
};

// Takes back, where it ends, the stop that was requested since.
struct StopScope {
  ~StopScope() { forget_stop(); }
};

// Writes dir/text, 1,000 bytes without a period, and gives a run of 12 steps that takes a moment.
inline RunConfig tiny_run(const TempDirectory& dir) {
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < 1000) {
    state = state * 1664525U + 1013904223U;
    text.push_back("abcdefgh \n"[state >> 28 & 7U]);
  }
  write_bytes(dir.file("text"), text);
  RunConfig config;
  config.model.n_layer = 1;
  config.model.n_head = 2;
  config.model.n_embd = 16;
  config.model.d_ff = 32;
  config.model.block_size = 8;
  config.model.vocab_size = 0;  // the tokenizer's
  config.model.coupling_hidden = 4;
  config.data = dir.file("text");
  config.batch_size = 2;
  config.max_iters = 12;
  config.warmup_iters = 3;
  config.learning_rate = 1e-2;
  config.eval_interval = 4;
  config.eval_iters = 2;
  config.keep = 100;
  config.device = "cpu";
  config.threads = 1;
  config.out_dir = dir.file("run");
  return config;
}

// Every tensor of a checkpoint, as bytes.
inline std::map<std::string, std::string> checkpoint_tensors(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const char* file : {"/model.safetensors", "/optim.safetensors"}) {
    const auto opened = SafetensorsFile::open(directory + file);
    for (const std::string& name : opened.names()) {
      const Tensor t = opened.load(name);
      out[name] = std::string(static_cast<const char*>(t.view().data), t.nbytes());
    }
  }
  return out;
}

inline std::vector<std::string> entries(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(directory)) {
    names.push_back(e.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace duet::test
