// RunConfig: everything one training run is made of. Field names are the command line's keys
// (train/config_keys.cpp holds the one table that parses, prints and documents them).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/config.h"

namespace duet {

enum class TaskKind : std::uint8_t { text, mqar };
enum class ScheduleKind : std::uint8_t { cosine, linear, constant, wsd };
enum class TraceNonfinite : std::uint8_t { off, sample, all };  // which ops' outputs are checked

struct RunConfig {
  ModelConfig model;
  std::string preset;  // as named by the user, for the record

  std::string data;                // training text
  std::string val_data;            // empty: the last 10 % of `data` validate
  std::string tokenizer = "byte";  // "byte" or a path
  bool strict_utf8 = false;        // refuse a corpus that is not UTF-8, with the offset

  TaskKind task = TaskKind::text;
  std::int64_t mqar_pairs = 4;  // of an example of block_size tokens; train/mqar.h
  bool mqar_random_non_queries = false;
  std::int64_t mqar_examples = 0;  // of the training set; 0: fresh ones every step

  std::int64_t batch_size = 12;
  std::int64_t gradient_accumulation_steps = 1;
  std::int64_t max_iters = 2000;
  double learning_rate = 1e-3;
  double min_lr = -1;  // -1: learning_rate / 10
  std::int64_t warmup_iters = 100;
  ScheduleKind schedule = ScheduleKind::cosine;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double adam_eps = 1e-8;
  double grad_clip = 1.0;  // 0: off
  std::uint64_t seed = 1337;
  std::int64_t max_nonfinite_steps = 3;
  TraceNonfinite trace_nonfinite = TraceNonfinite::off;

  std::string device = "auto";    // auto | cpu | cuda
  std::string dtype = "float32";  // float32 | bfloat16
  std::int64_t threads = 0;       // 0: what the process may use
  std::string memory_limit;       // "16GiB"; empty: what the device has free

  std::string out_dir = "runs/default";
  std::int64_t eval_interval = 250;
  std::int64_t eval_iters = 50;  // micro-batches of an evaluation; 0: the whole validation part
  std::int64_t diagnostics = 2;  // sequences that an evaluation measures maps of; 0: none
  std::int64_t log_interval = 10;
  std::int64_t save_interval = 0;  // 0: with every evaluation
  std::int64_t keep = 2;           // newest checkpoints kept, beside the best
  std::string init_from = "scratch";
  bool alloc_poison = false;  // fresh and freed memory holds NaN
  std::string alloc_trace;    // a file for every event of memory; empty: none
  bool resume = false;
};

}  // namespace duet
