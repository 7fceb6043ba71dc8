#include "report/status_json.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace status_json_test {

using nlohmann::json;
using ::testing::HasSubstr;

RunStatus Sample() {
  RunStatus sample;
  sample.run = {.run_id = "run-1",
                .attempt = 3,
                .fingerprint = "f00d",
                .run_dir = "/runs/1",
                .parameters = 100,
                .covered_parameters = 77,
                .device = "cpu",
                .optimizer = OptimizerKind::kMuon};
  sample.process_id = 4711;
  sample.host = "node-7";
  sample.time_unix_seconds = 1.7e9;
  MonitorStatus& status = sample.monitor;
  status.step = 12;
  status.steps_total = 13;
  status.last_step_unix_seconds = 1.6e9;
  status.learning_rate = 1e-3;
  status.tokens = 400;
  status.training_loss_nats = 2.5;
  status.lr_phase = LrPhase::kDecay;
  status.health = Health::kDegraded;
  status.health_reason = "why \xff";
  status.busy = true;
  status.snapshots[0] = 5;
  status.snapshots[kSnapshotResults - 1] = 6;
  status.reports_total = 7;
  status.probe_failures_total = 8;
  status.state_write_failures_total = 9;
  status.stall_buckets[0] = 10;
  status.stall_buckets.back() = 11;
  status.stall_seconds_total = 0.25;
  status.overhead_ratio = 0.01;
  status.overhead_low_ratio = 0.005;
  status.overhead_high_ratio = 0.015;
  status.overhead_comparisons = 6;
  status.overhead_budget_ratio = 0.02;
  status.plan_level_ratio = 0.5;
  status.memory_bytes = 14;
  status.memory_peak_bytes = 15;
  status.memory_budget_bytes = 16;
  status.duty_cycle = 0.04;
  status.seconds_a_step = 0.1;
  status.every = 17;
  status.paused = true;
  status.events[kEventKinds - 1] = 18;
  status.last_sequence = 30;
  status.dropped_reports = {{"grpc", "slow", 19}};
  status.slice.state = SliceState::kFailed;
  status.slice.number = 20;
  status.slice.points_done = 22;
  status.slice.points_all = 23;
  status.slice.path = "slice.json";
  status.slice.error = "why";
  status.slice.request = {QuantizationMethod::kGptq, 3, 9, 21, "nvfp4"};
  status.cooldown = {.state = CooldownState::kSimulating,
                     .number = 24,
                     .decay_steps = 25,
                     .step = 26,
                     .steps_done = 27,
                     .steps_all = 28,
                     .waits_for_core = true,
                     .result = "8.8 %",
                     .error = "why"};
  status.server = {.state = ServerState::kRestarting,
                   .metrics = "http://127.0.0.1:1/metrics",
                   .grpc = "127.0.0.1:2",
                   .restarts = 29,
                   .reason = "why"};
  status.ranks = {{.rank = 0, .health = Health::kOk, .snapshot_step = 31, .reports_total = 32},
                  {.rank = 3, .health = Health::kDegraded, .health_reason = "why"}};
  status.replicas = {.compared_step = 33,
                     .diverged = true,
                     .diverged_step = 34,
                     .parameter = "head",
                     .minority = "3"};
  return sample;
}

// As JSON, which shows what differs.
json Parsed(const RunStatus& status) { return json::parse(StatusJson(status)); }

TEST(StatusJson, ReadsBackWhatItWrote) {
  const RunStatus sample = Sample();
  const absl::StatusOr<RunStatus> read = StatusFromJson(StatusJson(sample));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Parsed(*read), Parsed(sample));
  EXPECT_EQ(read->monitor.snapshots, sample.monitor.snapshots);
  EXPECT_EQ(read->monitor.events, sample.monitor.events);
  EXPECT_EQ(read->monitor.stall_buckets, sample.monitor.stall_buckets);
  EXPECT_EQ(read->monitor.dropped_reports, sample.monitor.dropped_reports);
  EXPECT_EQ(read->monitor.ranks, sample.monitor.ranks);
  EXPECT_EQ(read->monitor.slice.request.at_step, 21);
  EXPECT_EQ(read->monitor.slice.request.format, "nvfp4");
  EXPECT_EQ(read->monitor.health_reason, "why \xEF\xBF\xBD");
}

TEST(StatusJson, LeavesOutWhatIsNotKnown) {
  RunStatus status;
  status.monitor.learning_rate = std::numeric_limits<double>::quiet_NaN();
  const absl::StatusOr<RunStatus> read = StatusFromJson(StatusJson(status));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->monitor.step, std::nullopt);
  EXPECT_EQ(read->monitor.overhead_ratio, std::nullopt);
  EXPECT_EQ(read->monitor.learning_rate, std::nullopt);
}

TEST(StatusJson, TakesWhatAnotherVersionWrote) {
  json line = Parsed(Sample());
  line["status"]["snapshots"]["invented"] = 4;
  line["status"]["health"] = "splendid";
  line["status"]["later"] = {1, 2};
  line["status"]["stall_buckets"].push_back(99);
  line["status"].erase("events");
  const absl::StatusOr<RunStatus> read = StatusFromJson(line.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->monitor.health, Health::kStarting);
  EXPECT_EQ(read->monitor.snapshots[0], 5);
  EXPECT_EQ(read->monitor.stall_buckets.back(), 11);
}

TEST(StatusJson, RefusesOtherText) {
  for (const char* text :
       {"", "{", "[]", "7", "{\"status\": 3}", "{\"run\": {\"attempt\": \"x\"}}",
        "{\"status\": {\"snapshots\": [1]}}", "{\"status\": {\"dropped_reports\": {}}}"}) {
    const absl::StatusOr<RunStatus> read = StatusFromJson(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("status JSON")) << text;
  }
  EXPECT_FALSE(StatusFromJson(std::string(100'000, '[')).ok());
}

}  // namespace status_json_test
}  // namespace ptqwatch::internal
