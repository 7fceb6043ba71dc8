#include "ptqwatch/options.h"

#include <gmock/gmock.h>

#include <cmath>

namespace ptqwatch {
namespace options_test {

using ::testing::HasSubstr;

void ExpectRefused(const MonitorOptions& options, const std::string& field,
                   const std::string& value) {
  const absl::Status status = Validate(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(field));
  EXPECT_THAT(message, HasSubstr(value));
}

TEST(MonitorOptions, DefaultsAreValid) { EXPECT_TRUE(Validate(MonitorOptions{}).ok()); }

TEST(MonitorOptions, RefusesSchedulesThatMakeNoSense) {
  const auto refuse = [](const ScheduleOptions& schedule, const std::string& field,
                         const std::string& value) {
    MonitorOptions options;
    options.schedule = schedule;
    ExpectRefused(options, "MonitorOptions.schedule." + field, value);
  };
  refuse({.every_seconds = -1}, "every_seconds", "-1");
  refuse({.every_seconds = std::nan("")}, "every_seconds", "nan");
  refuse({.log_spaced_per_decade = -2}, "log_spaced_per_decade", "-2");
  refuse({.log_spaced_per_decade = 1001}, "log_spaced_per_decade", "1001");
  refuse({.every_seconds = 5, .log_spaced_per_decade = 7}, "every_seconds",
         "schedule.log_spaced_per_decade = 7: choose one");
  refuse({.decay_density = 0}, "decay_density", "0");
  refuse({.decay_density = 1001}, "decay_density", "1001");
  MonitorOptions options;
  options.schedule = {.every_seconds = 0.5, .decay_density = 1};
  EXPECT_TRUE(Validate(options).ok());
}

TEST(MonitorOptions, RefusesCooldownsThatMakeNoSense) {
  const auto refuse = [](auto change, const std::string& field, const std::string& value) {
    MonitorOptions options;
    change(options.cooldown);
    ExpectRefused(options, "MonitorOptions.cooldown." + field, value);
  };
  refuse([](CooldownOptions& c) { c.decay_steps = -1; }, "decay_steps", "-1");
  refuse([](CooldownOptions& c) { c.final_ratio = 1; }, "final_ratio", "1");
  refuse([](CooldownOptions& c) { c.final_ratio = std::nan(""); }, "final_ratio", "nan");
  refuse([](CooldownOptions& c) { c.lengths = {}; }, "lengths", "0 of them");
  refuse([](CooldownOptions& c) { c.lengths = {0.5, 1.5}; }, "lengths", "1.5");
  refuse([](CooldownOptions& c) { c.lengths = {0.5, 0.5}; }, "lengths", "0.5");
  refuse([](CooldownOptions& c) { c.settle_steps = -2; }, "settle_steps", "-2");
  refuse([](CooldownOptions& c) { c.every_snapshots = 4; }, "every_snapshots", "4");
  refuse([](CooldownOptions& c) { c.max_time = std::chrono::milliseconds(-1); }, "max_time",
         "-1 ms");
}

TEST(MonitorOptions, RefusalsNameFieldAndValue) {
  for (int64_t every : {0, -5}) {
    MonitorOptions options;
    options.schedule.every = every;
    ExpectRefused(options, "schedule.every", std::to_string(every));
  }
  MonitorOptions options;
  options.relative_stderr = std::nan("");
  ExpectRefused(options, "relative_stderr", "nan");
  options = {};
  options.noise_relative_norm = -0.5;
  ExpectRefused(options, "noise_relative_norm", "-0.5");
  options = {};
  options.bytes_per_token = -4;
  ExpectRefused(options, "bytes_per_token", "-4");
  options = {};
  options.max_probe_tokens = 0;
  ExpectRefused(options, "max_probe_tokens", "0");
  options = {};
  options.further_probe_sets = -2;
  ExpectRefused(options, "further_probe_sets", "-2");
  options = {};
  options.max_bytes = -1;
  ExpectRefused(options, "max_bytes", "-1");
  options.max_bytes = 0;
  options.duty_cycle = 1.5;
  ExpectRefused(options, "duty_cycle", "1.5");
  options = {};
  options.duty_cycle = 0;
  ExpectRefused(options, "duty_cycle", "0");
  options = {};
  options.training_threads = -1;
  ExpectRefused(options, "training_threads", "-1");
  options = {};
  options.measuring_threads = 0;
  ExpectRefused(options, "measuring_threads", "0");
  options = {};
  options.snapshot_dtype = "bf16";
  ExpectRefused(options, "snapshot_dtype", "'bf16'");
  options = {};
  options.max_failures_in_a_row = 0;
  ExpectRefused(options, "max_failures_in_a_row", "0");
  options = {};
  options.max_snapshot_time = std::chrono::milliseconds(-1);
  ExpectRefused(options, "max_snapshot_time", "-1");
  options = {};
  options.max_gram_bytes = 0;
  ExpectRefused(options, "max_gram_bytes", "0");
  options = {};
  options.quantizers.clear();
  ExpectRefused(options, "quantizers", "{}");
  options = {};
  options.quantizers = {QuantizerSpec{}, QuantizerSpec{}};
  options.quantizers[1].bits = 9;
  ExpectRefused(options, "quantizers[1]", "9");
  options = {};
  options.quantizers = {QuantizerSpec{}, QuantizerSpec{}};
  ExpectRefused(options, "quantizers[1]", "gptq b4");
  options = {};
  const QuantizerSpec negative{.damp = -1};
  options.overrides = {{"*.up", negative}};
  ExpectRefused(options, "*.up", "-1");
  const QuantizerSpec five{.bits = 5};
  options.overrides = {{"*.up", five, "gptq4"}};
  EXPECT_TRUE(Validate(options).ok());
  options.overrides = {{"*.up", five, "gptq6"}};
  ExpectRefused(options, "MonitorOptions.overrides['*.up'].of = 'gptq6'", "rtn4, gptq3, gptq4");
  // Neither its own name nor `of` is one of the quantizers', so it would do nothing.
  options.overrides = {{"*.up", five}};
  ExpectRefused(options, "MonitorOptions.overrides['*.up']: gptq5", "none of the quantizers");
}

TEST(CalibrationMode, HasNames) {
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    EXPECT_EQ(ParseCalibrationMode(ToString(mode)).value(), mode);
  }
  const absl::Status status = ParseCalibrationMode("both").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'both'"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("one_shot and sequential"));
}

}  // namespace options_test
}  // namespace ptqwatch
