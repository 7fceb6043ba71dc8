#include "ptqwatch/options.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/strings.h"
#include "capture/layer_selection.h"
#include "ptqwatch/report.h"

namespace ptqwatch {
namespace {

constexpr int64_t kMostPerDecade = 1000;
constexpr int64_t kMostDense = 1000;

absl::Status Invalid(std::string_view field, const std::string& value, std::string_view expected) {
  return absl::InvalidArgumentError(
      internal::StrCat("MonitorOptions.", field, " = ", value, ": must be ", expected));
}

absl::Status ValidateSchedule(const ScheduleOptions& schedule) {
  using internal::StrCat;
  if (schedule.every <= 0) {
    return Invalid("schedule.every", StrCat(schedule.every), "positive");
  }
  if (!(schedule.every_seconds >= 0 && std::isfinite(schedule.every_seconds))) {
    return Invalid("schedule.every_seconds", StrCat(schedule.every_seconds),
                   "zero (a schedule by steps) or positive");
  }
  if (schedule.log_spaced_per_decade < 0 || schedule.log_spaced_per_decade > kMostPerDecade) {
    return Invalid("schedule.log_spaced_per_decade", StrCat(schedule.log_spaced_per_decade),
                   StrCat("zero (evenly spaced) or from 1 to ", kMostPerDecade));
  }
  if (schedule.every_seconds > 0 && schedule.log_spaced_per_decade > 0) {
    return Invalid("schedule.every_seconds", StrCat(schedule.every_seconds),
                   StrCat("zero with schedule.log_spaced_per_decade = ",
                          schedule.log_spaced_per_decade, ": choose one of them"));
  }
  if (schedule.decay_density < 1 || schedule.decay_density > kMostDense) {
    return Invalid("schedule.decay_density", StrCat(schedule.decay_density),
                   StrCat("from 1 (not denser) to ", kMostDense));
  }
  return absl::OkStatus();
}

// How precise loss comparisons are, and on how much data.
absl::Status ValidateComparison(const MonitorOptions& options) {
  using internal::StrCat;
  if (!(options.relative_stderr > 0 && std::isfinite(options.relative_stderr))) {
    return Invalid("relative_stderr", StrCat(options.relative_stderr), "positive");
  }
  if (!(options.absolute_stderr_ratio >= 0 && std::isfinite(options.absolute_stderr_ratio))) {
    return Invalid("absolute_stderr_ratio", StrCat(options.absolute_stderr_ratio),
                   "zero (no such bound) or positive");
  }
  if (options.max_probe_tokens <= 0) {
    return Invalid("max_probe_tokens", StrCat(options.max_probe_tokens), "positive");
  }
  if (options.further_probe_sets < 0) {
    return Invalid("further_probe_sets", StrCat(options.further_probe_sets),
                   "zero (off) or positive");
  }
  return absl::OkStatus();
}

absl::Status ValidateQuantizers(const MonitorOptions& options) {
  using internal::StrCat;
  if (options.quantizers.empty()) return Invalid("quantizers", "{}", "one quantizer or more");
  for (size_t i = 0; i < options.quantizers.size(); ++i) {
    if (absl::Status status = Validate(options.quantizers[i]); !status.ok()) {
      return absl::InvalidArgumentError(StrCat("MonitorOptions.quantizers[", i, "]: ", status));
    }
  }
  for (size_t i = 0; i < options.quantizers.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!(options.quantizers[i] == options.quantizers[j])) continue;
      return absl::InvalidArgumentError(StrCat("MonitorOptions.quantizers[", i, "] repeats [", j,
                                               "]: ", Describe(options.quantizers[i])));
    }
  }
  if (const absl::Status status =
          internal::ValidateOverrides(options.overrides, options.quantizers);
      !status.ok()) {
    return absl::InvalidArgumentError(StrCat("MonitorOptions.", status));
  }
  for (const SpecOverride& given : options.overrides) {
    const auto same = [&](const QuantizerSpec& spec) { return KeyOf(spec) == KeyOf(given.spec); };
    if (!given.of.empty() ||
        std::any_of(options.quantizers.begin(), options.quantizers.end(), same))
      continue;
    return absl::InvalidArgumentError(StrCat("MonitorOptions.overrides['", given.layers,
                                             "']: ", ShortName(KeyOf(given.spec)),
                                             " is none of the quantizers, and `of` names none"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const AveragingOptions& options) {
  using internal::StrCat;
  constexpr int kMostSnapshots = 64;
  if (options.window < 2 || options.window > kMostSnapshots) {
    return Invalid("averaging.window", StrCat(options.window),
                   StrCat("from 2 to ", kMostSnapshots, " snapshots"));
  }
  if (options.spacing < 1) {
    return Invalid("averaging.spacing", StrCat(options.spacing), "positive");
  }
  if (!(options.decay >= 0 && options.decay < 1)) {
    return Invalid("averaging.decay", StrCat(options.decay),
                   "zero (no exponential average) or in (0, 1)");
  }
  return absl::OkStatus();
}

absl::Status Validate(const CooldownOptions& options) {
  using internal::StrCat;
  constexpr size_t kMostLengths = 16;
  if (options.decay_steps < 0) {
    return Invalid("cooldown.decay_steps", StrCat(options.decay_steps),
                   "zero (not planned) or positive");
  }
  if (!(options.final_ratio >= 0 && options.final_ratio < 1)) {
    return Invalid("cooldown.final_ratio", StrCat(options.final_ratio), "in [0, 1)");
  }
  if (options.lengths.empty() || options.lengths.size() > kMostLengths) {
    return Invalid("cooldown.lengths", StrCat(options.lengths.size(), " of them"),
                   StrCat("from 1 to ", kMostLengths));
  }
  double before = 0;
  for (const double length : options.lengths) {
    if (!(length > before && length <= 1)) {
      return Invalid("cooldown.lengths", StrCat(length), "ascending, in (0, 1]");
    }
    before = length;
  }
  if (options.settle_steps < 0) {
    return Invalid("cooldown.settle_steps", StrCat(options.settle_steps), "zero or positive");
  }
  if (options.every_snapshots < 0) {
    return Invalid("cooldown.every_snapshots", StrCat(options.every_snapshots),
                   "zero (on request) or positive");
  }
  if (options.every_snapshots > 0 && options.decay_steps == 0) {
    return Invalid("cooldown.every_snapshots", StrCat(options.every_snapshots),
                   "zero if cooldown.decay_steps is zero");
  }
  if (options.max_time < std::chrono::milliseconds(0)) {
    return Invalid("cooldown.max_time", StrCat(options.max_time.count(), " ms"),
                   "zero (no cap) or positive");
  }
  return absl::OkStatus();
}

absl::Status Validate(const MonitorOptions& options) {
  using internal::StrCat;
  if (absl::Status status = ValidateSchedule(options.schedule); !status.ok()) return status;
  if (absl::Status status = ValidateComparison(options); !status.ok()) return status;
  if (!(options.noise_relative_norm >= 0 && std::isfinite(options.noise_relative_norm))) {
    return Invalid("noise_relative_norm", StrCat(options.noise_relative_norm),
                   "zero (off) or positive");
  }
  if (!(options.bytes_per_token >= 0 && std::isfinite(options.bytes_per_token))) {
    return Invalid("bytes_per_token", StrCat(options.bytes_per_token),
                   "zero (unknown) or positive");
  }
  if (options.max_gram_bytes <= 0) {
    return Invalid("max_gram_bytes", StrCat(options.max_gram_bytes), "positive");
  }
  if (options.max_snapshot_time < std::chrono::milliseconds(0)) {
    return Invalid("max_snapshot_time", StrCat(options.max_snapshot_time.count(), " ms"),
                   "zero (no cap) or positive");
  }
  if (options.max_failures_in_a_row <= 0) {
    return Invalid("max_failures_in_a_row", StrCat(options.max_failures_in_a_row), "positive");
  }
  if (!(options.max_overhead > 0 && options.max_overhead <= 1)) {
    return Invalid("max_overhead", StrCat(options.max_overhead), "in (0, 1]");
  }
  if (options.duty_cycle && !(*options.duty_cycle > 0 && *options.duty_cycle <= 1)) {
    return Invalid("duty_cycle", StrCat(*options.duty_cycle), "in (0, 1]");
  }
  if (options.max_bytes < 0) {
    return Invalid("max_bytes", StrCat(options.max_bytes),
                   "0 (a quarter of the free memory) or positive");
  }
  if (options.training_threads < 0) {
    return Invalid("training_threads", StrCat(options.training_threads),
                   "0 (ask LibTorch) or positive");
  }
  if (options.measuring_threads < 1) {
    return Invalid("measuring_threads", StrCat(options.measuring_threads), "positive");
  }
  if (const std::string& dtype = options.snapshot_dtype;
      !dtype.empty() && !internal::RoundingType(dtype)) {
    return Invalid("snapshot_dtype", StrCat("'", dtype, "'"),
                   "'bfloat16', 'float16' or empty (the weights' own)");
  }
  if (options.device_reserve_bytes < 0) {
    return Invalid("device_reserve_bytes", StrCat(options.device_reserve_bytes),
                   "zero (no reserve) or positive");
  }
  if (options.clock == nullptr) return Invalid("clock", "null", "a clock");
  if (options.ranks.value_or(1) > 1 && options.schedule.every_seconds > 0) {
    return Invalid("schedule.every_seconds", StrCat(options.schedule.every_seconds),
                   StrCat("zero with ranks = ", *options.ranks,
                          ", which agree on steps but have no common clock"));
  }
  if (absl::Status status = ValidateQuantizers(options); !status.ok()) return status;
  if (absl::Status status = Validate(options.averaging); !status.ok()) return status;
  if (absl::Status status = Validate(options.cooldown); !status.ok()) return status;
  if (absl::Status status = Validate(options.curvature); !status.ok()) {
    return absl::InvalidArgumentError(StrCat("MonitorOptions.", status));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch
