// Carries an experiment out: each run a `duet train` of its own, so that one that fails takes no
// other with it.
#pragma once

#include <cstdint>

#include "train/lab/experiment.h"

namespace duet {

struct LabOutcome {
  int code = 0;    // 0, or the exit code of the first run that failed
  int signal = 0;  // the stop signal; the runs were saved
};

// Whether the run has done all its steps, evaluated and saved.
bool is_finished(const ExperimentRun& run);

// Runs what is not finished, `jobs` at once with the threads split among them, and writes the
// reports after each, until a stop is requested. What is finished is left alone, what was
// interrupted goes on from its checkpoint. Requires the experiment's lock.
LabOutcome run_experiment(const Experiment& experiment, std::int64_t jobs);

}  // namespace duet
