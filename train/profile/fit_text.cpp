// The answers of a fit, for people, for messages and for programs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/enum_names.h"
#include "runtime/error.h"
#include "runtime/printable.h"
#include "train/environment.h"
#include "train/profile/fit.h"
#include "train/text.h"

namespace duet {
namespace {

std::int64_t tokens_per_step(const FitResult& result, const FitOption& option) {
  return option.batch_size * option.gradient_accumulation_steps * result.run.model.block_size;
}

// Beside the fastest.
double relative_time(const FitResult& result, const FitOption& option) {
  return result.fastest ? option.cost / result.fastest->cost : 0;
}

// In the measure of the limit.
std::uint64_t planned_in(const FitResult& result, const FitOption& option) {
  return result.measure == MemoryMeasure::tensors ? option.planned_bytes : option.process_bytes;
}

std::string_view name(MemoryMeasure measure) {
  if (measure == MemoryMeasure::tensors) return "tensors";
  return measure == MemoryMeasure::resident ? "process" : "address space";
}

std::string planned_of(const FitResult& result, const FitOption& option) {
  const auto [planned, limit] = format_apart(planned_in(result, option), result.limit);
  return concat("planned ", planned, " of ", limit);
}

std::string recommendation(const FitResult& result, const char* label,
                           const std::optional<FitOption>& option) {
  if (!option) return {};
  return fmt::format("{:<14} {}: {}, {} tokens per step\n", label, fit_flags(*option),
                     planned_of(result, *option), format_count(tokens_per_step(result, *option)));
}

nlohmann::ordered_json json_of(const FitResult& result, const FitOption& option) {
  nlohmann::ordered_json out;
  out["recompute"] = enum_name(option.recompute);
  out["batch_size"] = option.batch_size;
  out["gradient_accumulation_steps"] = option.gradient_accumulation_steps;
  out["planned_bytes"] = option.planned_bytes;
  if (result.measure != MemoryMeasure::tensors) out["process_bytes"] = option.process_bytes;
  if (option.batch_size == 0) return out;
  out["tokens_per_step"] = tokens_per_step(result, option);
  out["relative_time"] = relative_time(result, option);
  out["flags"] = fit_flags(option);
  return out;
}

const FitOption& smallest(const FitResult& result) {
  return *std::min_element(
      result.modes.begin(), result.modes.end(),
      [&](const auto& a, const auto& b) { return planned_in(result, a) < planned_in(result, b); });
}

}  // namespace

std::string fit_flags(const FitOption& option) {
  return concat("--batch_size ", option.batch_size, " --gradient_accumulation_steps ",
                option.gradient_accumulation_steps, " --recompute ", enum_name(option.recompute));
}

std::string fit_advice(const FitResult& result) {
  const std::optional<FitOption>& best = result.same_step ? result.same_step : result.fastest;
  if (best) {
    return concat("a setting that fits: ", fit_flags(*best), " (", planned_of(result, *best), ")");
  }
  const FitOption& least = smallest(result);
  return concat("no batch fits: --batch_size 1 --recompute ", enum_name(least.recompute),
                " takes the least (", planned_of(result, least),
                "); use a smaller model or block_size");
}

std::string fit_text(const FitResult& result) {
  std::string out = fmt::format(
      "fits in        {} ({} bytes) of {}, with {} {} of {} tokens and {}\n"
      "recompute   batch_size      tensors {:>13}    time per token\n",
      format_bytes(result.limit), format_count(static_cast<std::int64_t>(result.limit)),
      planned_for_words(result.device), result.run.gradient_accumulation_steps,
      result.run.gradient_accumulation_steps == 1 ? "micro-batch" : "micro-batches",
      format_count(result.run.model.block_size), printable(result.run.dtype),
      result.measure == MemoryMeasure::tensors ? "" : name(result.measure));
  for (const FitOption& option : result.modes) {
    const std::string time =
        option.batch_size == 0 ? "-" : fmt::format("{:.2f}", relative_time(result, option));
    const std::string batch = option.batch_size == 0 ? "none" : format_count(option.batch_size);
    out += fmt::format(
        "{:<10} {:>11} {:>12} {:>13} {:>17}\n", enum_name(option.recompute), batch,
        format_bytes(option.planned_bytes),
        result.measure == MemoryMeasure::tensors ? "" : format_bytes(option.process_bytes), time);
  }
  if (!result.fastest) return out;  // the refusal says it
  out += recommendation(result, "fastest", result.fastest);
  out += recommendation(result, "same step", result.same_step);
  if (!result.monotone) {
    out +=
        "note: the plan of some larger batch took less than that of a smaller one: batches between "
        "those planned may fit too\n";
  }
  return out;
}

std::string fit_json(const FitResult& result) {
  nlohmann::ordered_json out;
  out["limit_bytes"] = result.limit;
  out["limit_of"] = name(result.measure);
  out["device"] = duet::name(result.device.kernels());
  out["planned_for"] = planned_for_words(result.device);
  out["monotone"] = result.monotone;
  out["modes"] = nlohmann::ordered_json::array();
  for (const FitOption& option : result.modes) out["modes"].push_back(json_of(result, option));
  for (const auto& [name, option] :
       {std::pair("fastest", result.fastest), std::pair("same_step", result.same_step)}) {
    out[name] = option ? json_of(result, *option) : nlohmann::ordered_json();
  }
  return out.dump(2) + "\n";
}

}  // namespace duet
