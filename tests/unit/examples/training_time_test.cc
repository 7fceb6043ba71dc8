#include "training_time.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"
#include "stop_signal.h"
#include "support/tiny_trainer.h"

namespace ptqwatch::examples {
namespace training_time_test {

int64_t Count(const Monitor& monitor, SnapshotResult result) {
  return monitor.status().snapshots[static_cast<size_t>(result)];
}

// Finish counts a snapshot of its own if the due one was not taken, or if it measures again.
TEST(TrainingTime, WaitsOnlyAtStepsWhereASnapshotIsDue) {
  SetLogSink(Severity::kError, nullptr);
  testing::TinyTrainer trainer;
  MonitorOptions options;
  options.schedule.every = 10;
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8}};
  options.curvature.enabled = false;
  auto created = Monitor::Create(trainer.MakeSubject(), std::move(options));
  ASSERT_TRUE(created.ok()) << created.status();
  Monitor& monitor = **created;
  const StopSignal stop;
  TrainingTime time(&monitor, /*wait=*/true, stop);
  const auto step = [&](int64_t number) {
    monitor.OnStep({.step = number, .learning_rate = 1e-2});
    time.AfterStep();
  };
  for (int64_t number = 1; number < 10; ++number) step(number);
  EXPECT_EQ(Count(monitor, SnapshotResult::kTaken), 0);
  trainer.ReplaceParameter();
  step(10);
  EXPECT_EQ(Count(monitor, SnapshotResult::kSkippedMismatch), 2);
  for (int64_t number = 11; number < 20; ++number) step(number);
  EXPECT_EQ(Count(monitor, SnapshotResult::kSkippedMismatch), 2);
}

}  // namespace training_time_test
}  // namespace ptqwatch::examples
