// Reporters: one report, told to several.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "train/reporter.h"

namespace duet {

class Reporters final : public Reporter {
 public:
  explicit Reporters(std::vector<Reporter*> all) : all_(std::move(all)) {}
  void on_start(const StartReport& report) override {
    for (Reporter* r : all_) r->on_start(report);
  }
  void on_step(const StepReport& report) override {
    for (Reporter* r : all_) r->on_step(report);
  }
  void on_eval_start(std::int64_t step) override {
    for (Reporter* r : all_) r->on_eval_start(step);
  }
  void on_eval(const EvalReport& report) override {
    for (Reporter* r : all_) r->on_eval(report);
  }
  void on_save() override {
    for (Reporter* r : all_) r->on_save();
  }
  bool holds_evaluation(std::int64_t step) const override {
    return std::all_of(all_.begin(), all_.end(),
                       [&](const Reporter* r) { return r->holds_evaluation(step); });
  }
  void on_checkpoint(std::int64_t step, const std::string& directory) override {
    for (Reporter* r : all_) r->on_checkpoint(step, directory);
  }
  void on_notice(const std::string& text) override {
    for (Reporter* r : all_) r->on_notice(text);
  }

 private:
  std::vector<Reporter*> all_;
};

}  // namespace duet
