// metrics.jsonl: read back for a report with charts, and repaired when its run goes on.
#include "tests/fuzz/fuzz_file.h"
#include "train/lab/report.h"
#include "train/metrics.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  static const ExperimentRecord record = [] {
    ExperimentRecord r;
    r.directory = fuzz::directory();
    r.arms = {{"a", "", 1, 10}, {"b", "", 1, 1000}};
    r.seeds = {1};
    for (std::size_t arm = 0; arm < r.arms.size(); ++arm) {
      std::filesystem::create_directories(run_directory(r, arm, 1));
    }
    return r;
  }();
  // Two runs: the halves of the input.
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::write("runs/a-seed1/metrics.jsonl", text.substr(0, size / 2));
  fuzz::write("runs/b-seed1/metrics.jsonl", text.substr(size / 2));
  fuzz::read([] {
    const LabSummary summary = summarize(record);
    markdown_report(summary);
    html_report(summary);
  });
  fuzz::read([&] {
    Reporter quiet;
    Metrics metrics(run_directory(record, 1, 1), 10, quiet);
    StartReport start;
    start.step = 20;
    start.resumed_from = "step_00000020";
    metrics.on_start(start);
    StepReport step;
    step.step = 30;
    step.max_iters = 30;
    metrics.on_step(step);
    metrics.flush();
  });
  return 0;
}
