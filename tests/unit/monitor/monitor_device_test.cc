// Monitors of a model on a device with streams, using a fake device whose work waits as long as
// events allow.
#include "ATen/Parallel.h"
#include "absl/cleanup/cleanup.h"
#include "monitor_fixture.h"
#include "snapshot/device_stream.h"
#include "support/fake_device.h"

namespace ptqwatch {
namespace monitor_device_test {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A separate trainer; without a device, all work happens at once.
struct DeviceRun : MonitorTest {
  explicit DeviceRun(bool with_device = true) {
    if (!with_device) return;
    device = std::make_shared<testing::FakeDevice>();
    device->SetWaitsBlock();
    internal::ReplaceDeviceRuntimes([this](at::Device) { return device; });
  }
  ~DeviceRun() override {
    monitor.reset();
    internal::ReplaceDeviceRuntimes(nullptr);
  }
  void TestBody() override {}

  void QueueStep(int64_t step) {
    if (device == nullptr) return Step(step);
    device->Queued(device->Current(), [this] { trainer.Step(); });
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
  }
  std::string HealthReason() { return monitor->status().health_reason; }

  std::shared_ptr<testing::FakeDevice> device;
};

// Losses and quantized losses of every report of a run.
std::vector<double> LossesOf(DeviceRun& run) {
  std::vector<double> losses;
  for (const auto& analyzed : run.recording->Reports()) {
    const Report& report = analyzed->report;
    losses.push_back(static_cast<double>(report.step));
    losses.push_back(report.probe_loss_nats.value_or(-1));
    for (const QuantizationReport& quantizer : report.quantization) {
      losses.push_back(quantizer.loss_nats.value_or(-1));
    }
  }
  return losses;
}

// Snapshots at steps 3, 6 and 9; on a device, each is loaded once two more updates are queued.
std::vector<double> LossesOfARun(bool with_device, bool beside) {
  DeviceRun run(with_device);
  MonitorOptions options = MonitorTest::Every(3);
  options.copy_beside_training = beside;
  options.adapt_plan = false;  // on a busy machine the first snapshot would have fewer batches
  run.Create(options);
  for (int64_t step = 1; step < 12; step += 3) {
    {
      std::unique_lock<std::recursive_mutex> held;
      if (with_device) held = run.device->Hold();
      // Except for step 1, the first of these steps follows a snapshot.
      for (int64_t i = step == 1 ? 1 : step - 1; i < step + 2; ++i) {
        run.monitor->BeforeUpdate();
        run.QueueStep(i);
      }
    }
    if (step > 1) {
      EXPECT_TRUE(run.recording->WaitForReports(static_cast<size_t>(step / 3)));
    }
  }
  return LossesOf(run);
}

TEST(MonitorDevice, MeasuresTheWeightsOfTheStepHoweverLateTheDeviceIs) {
  // A queued update runs on the thread that waits for it. Its sums have the same order there, and
  // so the same bits, only if updates use one thread.
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const absl::Cleanup restore_threads = [threads] { at::set_num_threads(threads); };
  const std::vector<double> expected = LossesOfARun(/*with_device=*/false, /*beside=*/false);
  EXPECT_EQ(expected.size(), 3u * 4u);
  EXPECT_EQ(LossesOfARun(/*with_device=*/true, /*beside=*/false), expected);
  EXPECT_EQ(LossesOfARun(/*with_device=*/true, /*beside=*/true), expected);
  EXPECT_EQ(LossesOfARun(/*with_device=*/false, /*beside=*/true), expected);
}

TEST(MonitorDevice, LeavesOutASnapshotThatNoGateFollowed) {
  DeviceRun run;
  MonitorOptions options = MonitorTest::Every(2);
  options.copy_beside_training = true;
  run.Create(options);
  for (int64_t step = 1; step <= 3; ++step) run.QueueStep(step);  // no BeforeUpdate
  EXPECT_EQ(run.Count(SnapshotResult::kFailed), 1);
  EXPECT_EQ(run.Count(SnapshotResult::kTaken), 0);
  run.QueueStep(4);
  run.monitor->BeforeUpdate();
  EXPECT_EQ(run.Count(SnapshotResult::kTaken), 1);
  ASSERT_TRUE(run.recording->WaitForReports(1));
  EXPECT_EQ(run.recording->Reports()[0]->report.step, 4);
}

TEST(MonitorDevice, FinishNeedsNoGate) {
  DeviceRun run;
  MonitorOptions options = MonitorTest::Every(2);
  options.copy_beside_training = true;
  run.Create(options);
  for (int64_t step = 1; step <= 2; ++step) {
    run.monitor->BeforeUpdate();
    run.QueueStep(step);
  }
  EXPECT_TRUE(run.monitor->Finish(std::chrono::minutes(1)).ok());
  run.monitor->BeforeUpdate();
  run.QueueStep(3);
  EXPECT_TRUE(run.monitor->Finish(std::chrono::minutes(1)).ok());
  ASSERT_EQ(run.recording->Reports().size(), 2u);
  EXPECT_EQ(run.recording->Reports()[1]->report.step, 3);
}

TEST(MonitorDevice, EndsWithTheDeviceButNotTheRun) {
  DeviceRun run;
  run.Create(MonitorTest::Every(1));
  run.device->SetFault(absl::UnavailableError("cuda:0 gives nothing but errors"));
  run.QueueStep(1);
  ASSERT_TRUE(run.recording->WaitForReports(1));
  while (run.monitor->status().busy) std::this_thread::yield();
  for (int64_t step = 2; step <= 5; ++step) run.QueueStep(step);
  EXPECT_EQ(run.Count(SnapshotResult::kSkippedPaused), 4);
  EXPECT_THAT(run.HealthReason(), HasSubstr("nothing but errors"));
  EXPECT_THAT(run.recording->Events(), Contains(Field(&Event::kind, Event::Kind::kProbeDisabled)));
}

TEST(MonitorDevice, AnErrorOfOneCallEndsNothing) {
  DeviceRun run;
  run.Create(MonitorTest::Every(1));
  run.gate->Set(true, /*throws=*/true);
  run.QueueStep(1);
  ASSERT_TRUE(run.recording->WaitForReports(1));
  run.gate->Set(true);
  while (run.monitor->status().busy) std::this_thread::yield();
  run.QueueStep(2);
  ASSERT_TRUE(run.recording->WaitForReports(2));
  EXPECT_TRUE(run.recording->Reports()[1]->report.probe_loss_nats.has_value());
  EXPECT_THAT(run.HealthReason(), IsEmpty());
}

TEST(MonitorDevice, LeavesMemoryToTraining) {
  DeviceRun run;
  MonitorOptions options = MonitorTest::Every(1);
  options.device_reserve_bytes = 1000;
  run.Create(options);
  run.device->SetFreeBytes(900);
  run.QueueStep(1);
  ASSERT_TRUE(run.recording->WaitForReports(1));
  EXPECT_EQ(run.recording->Reports()[0]->report.probe_loss_nats, std::nullopt);
  EXPECT_THAT(run.HealthReason(), HasSubstr("MonitorOptions.device_reserve_bytes = 1000"));
  run.device->SetFreeBytes(int64_t{1} << 40);
  while (run.monitor->status().busy) std::this_thread::yield();
  run.QueueStep(2);
  ASSERT_TRUE(run.recording->WaitForReports(2));
  EXPECT_TRUE(run.recording->Reports()[1]->report.probe_loss_nats.has_value());
}

TEST(MonitorDevice, HoldsTheDevicesMemoryAgainstTheDevice) {
  constexpr int64_t kFree = int64_t{1} << 50;  // more than any host has
  DeviceRun run;
  run.device->SetFreeBytes(kFree);
  MonitorOptions options = MonitorTest::Every(1);
  options.device_reserve_bytes = 1000;
  run.Create(options);
  EXPECT_EQ(run.monitor->status().memory_budget_bytes, kFree - 1000);
  const std::string described = run.monitor->Describe();
  EXPECT_THAT(described, HasSubstr("memory on cpu: "));  // the fake device's name
  EXPECT_THAT(described,
              HasSubstr(" of 1125899906.8 MB allowed (free beside device_reserve_bytes)"));
  EXPECT_THAT(described, HasSubstr("memory on the host: 1.0 MB at most, of "));
}

TEST(MonitorDevice, MaxBytesHoldsForEachDevice) {
  DeviceRun run;
  MonitorOptions options = MonitorTest::Every(1);
  options.max_bytes = int64_t{1} << 30;
  run.Create(options);
  EXPECT_EQ(run.monitor->status().memory_budget_bytes, options.max_bytes);
  EXPECT_THAT(run.monitor->Describe(), HasSubstr(" of 1073.7 MB allowed (free beside"));
}

TEST(MonitorDevice, IsNotCreatedIfItsCopiesWouldTakeTheReserve) {
  DeviceRun run;
  run.device->SetFreeBytes(1000);
  MonitorOptions options = MonitorTest::Every(1);
  options.device_reserve_bytes = 1000;
  const auto created = Monitor::Create(run.trainer.MakeSubject(), options);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(created.status().message()), HasSubstr("device_reserve_bytes = 1000"));
}

TEST(MonitorDevice, MeasuresNothingOnAStreamThatIsNotItsOwn) {
  DeviceRun run;
  MonitorOptions options = MonitorTest::Every(1);
  options.curvature.enabled = false;
  run.Create(options);
  run.monitor.reset();
  internal::ReplaceDeviceRuntimes([&](at::Device) {
    // The thread on which Create measures its costs enters first.
    run.device->SetRefusesThreads(/*after=*/1);
    return run.device;
  });
  run.Create(options);
  while (run.monitor->status().health != Health::kDegraded) std::this_thread::yield();
  run.QueueStep(1);
  EXPECT_EQ(run.Count(SnapshotResult::kSkippedPaused), 1);
  EXPECT_THAT(run.recording->Reports(), IsEmpty());
  EXPECT_THAT(run.HealthReason(), HasSubstr("could not be set up"));
}

TEST(MonitorDevice, NamesADeviceThatCannotBe) {
  DeviceRun run(/*with_device=*/false);
  MonitorOptions options = MonitorTest::Every(1);
  options.monitor_device = "gpu";
  const auto created = Monitor::Create(run.trainer.MakeSubject(), options);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(created.status().message()),
              HasSubstr("MonitorOptions.monitor_device = 'gpu'"));
}

}  // namespace monitor_device_test
}  // namespace ptqwatch
