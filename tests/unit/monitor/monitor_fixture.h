#ifndef PTQWATCH_TESTS_MONITOR_MONITOR_FIXTURE_H_
#define PTQWATCH_TESTS_MONITOR_MONITOR_FIXTURE_H_

#include <gmock/gmock.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"
#include "support/fake_clock.h"
#include "support/recording_exporter.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {

/// Lets calls of the losses closure on the monitor thread pass, holds them back, or makes them
/// throw.
class Gate {
 public:
  void operator()() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || tickets_ > 0; });
    if (!open_) --tickets_;
    --waiting_;
    if (throws_) throw std::runtime_error("CUDA error: device-side assert");
  }
  void Set(bool open, bool throws = false) {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = open;
    throws_ = throws;
    changed_.notify_all();
  }
  /// Lets the next waiting call pass, if any.
  void LetOneThrough() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_ > 0 && tickets_ == 0) ++tickets_;
    changed_.notify_all();
  }
  void AwaitCaller() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  bool throws_ = false;
  int waiting_ = 0;
  int tickets_ = 0;
};

struct MonitorTest : ::testing::Test {
  MonitorTest() { SetLogSink(Severity::kError, nullptr); }
  ~MonitorTest() override { gate->Set(true); }

  void Create(MonitorOptions options, testing::Fault fault = testing::Fault::kNone) {
    if (options.quantizers == DefaultQuantizers()) {
      options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                            {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8}};
    }
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
    auto created = Monitor::Create(trainer.MakeSubject(fault, [gate = gate] { (*gate)(); }),
                                   options, std::move(exporters));
    ASSERT_TRUE(created.ok()) << created.status();
    monitor = *std::move(created);
  }
  static MonitorOptions Every(int64_t steps) {
    MonitorOptions options;
    options.on_failure = OnFailure::kError;
    options.schedule.every = steps;
    options.duty_cycle = 1.0;
    return options;
  }
  void Step(int64_t step) {
    trainer.Step();
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
  }
  int64_t Count(SnapshotResult result) {
    return monitor->status().snapshots[static_cast<size_t>(result)];
  }

  testing::FakeClock clock;
  testing::TinyTrainer trainer;
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::shared_ptr<testing::Recording> recording = std::make_shared<testing::Recording>();
  std::unique_ptr<Monitor> monitor;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_TESTS_MONITOR_MONITOR_FIXTURE_H_
