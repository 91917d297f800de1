// An experiment: arms x seeds, each an ordinary training run in a directory of its own. The arms of
// a seed start from the same numbers in every weight they share and read the same batches, so they
// are compared pair by pair.
//
//   DIR/experiment.json    what was planned     DIR/configs/euler-seed2.toml   one run's settings
//   DIR/runs/euler-seed2/  one run              DIR/report.md, report.html     the results
#pragma once

#include <string>
#include <vector>

#include "train/config.h"
#include "train/config_file.h"
#include "train/data.h"

namespace duet {

struct ExperimentArm {
  std::string name;
  std::string changes;  // "coupling = \"euler\"", as in the file
  std::int64_t parameters = 0;
  std::int64_t max_iters = 0;
};

// What the report needs to know beside the runs' own logs.
struct ExperimentRecord {
  std::string directory;
  std::vector<ExperimentArm> arms;
  std::vector<std::int64_t> seeds;
  std::string common;  // settings of all runs, one per line
  // Keys that differ between arms and decide which batches a run reads: the seeds' runs are then
  // paired in name only.
  std::vector<std::string> unpaired_keys;
  std::vector<FileIdentity> files;  // training and validation texts
  std::vector<std::string> command_line;
};

struct ExperimentRun {
  std::size_t arm = 0;
  std::int64_t seed = 0;
  std::string name;         // "euler-seed2"
  std::string directory;    // DIR/runs/euler-seed2
  std::string config_path;  // DIR/configs/euler-seed2.toml
  std::string config;       // its text
  RunConfig resolved;
};

struct Experiment {
  ExperimentRecord record;
  std::vector<ExperimentRun> runs;  // seed by seed: what is done at any time is paired
};

inline constexpr const char* kExperimentFile = "experiment.json";
std::string run_name(const ExperimentArm& arm, std::int64_t seed);
std::string run_directory(const ExperimentRecord& record, std::size_t arm, std::int64_t seed);

// Reads the file; `flags` win over its common keys. Everything that can be wrong with any run's
// configuration is found here; writes nothing. Throws Error(usage or file), also for a flag that an
// arm sets itself. Without an out_dir it is runs/ and the name of the file.
Experiment plan_experiment(const std::string& file, const std::vector<Setting>& flags);

// Compares the plan with what DIR already holds. Throws Error(usage or file) naming run, keys and
// both values for a run that was begun with other settings, or a text that is another file now.
// Arms and seeds may be added.
void check_existing(const Experiment& experiment);

void write_record(const ExperimentRecord& record);
// Throws Error(file) naming what is missing or damaged.
ExperimentRecord read_record(const std::string& directory);

}  // namespace duet
