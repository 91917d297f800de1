#include "tools/profile_fit.h"

#include "runtime/error.h"
#include "runtime/printable.h"
#include "tools/output.h"
#include "train/device_choice.h"
#include "train/profile/fit.h"
#include "train/run_checks.h"
#include "train/text.h"

namespace duet {

int profile_fit(const RunConfig& run, const std::string& limit_text, const AnswerFile& json) {
  const auto limit = parse_bytes(limit_text);
  check(limit.has_value(), ErrorKind::usage, "--fit: got ", in_quotes(limit_text), ", expected ",
        kBytesForm);
  const FitResult result = fit(run, {*limit, measure_of_limit(planning_device(run.device))});
  write_answer(json, fit_json(result));
  write_progress(fit_text(result));
  check(result.fastest.has_value(), ErrorKind::memory, "profile: nothing fits in ",
        format_bytes(*limit), ": ", fit_advice(result));
  return 0;
}

}  // namespace duet
