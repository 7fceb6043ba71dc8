// The default random generators belong to the training run: other threads may draw from them during
// Create, and losses closures may draw, seed, or hide that they do.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"
#include "ATen/ops/rand.h"
#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"
#include "support/recording_exporter.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace monitor_random_test {

using ::testing::HasSubstr;

float Draw() { return at::rand({1}).item<float>(); }

at::Tensor State() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

std::string Bytes(const at::Tensor& state) {
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

// Like trainers that want the same numbers each time and then restore the generator.
void DrawInSecret() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor saved = State();
  at::manual_seed(9);
  Draw();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(saved);
}

struct MonitorRandom : ::testing::Test {
  MonitorRandom() { SetLogSink(Severity::kError, nullptr); }

  absl::Status Create(std::function<void()> before_losses) {
    MonitorOptions options;
    options.on_failure = OnFailure::kError;
    options.schedule.every = 1;
    options.duty_cycle = 1;
    options.max_failures_in_a_row = 2;
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
    auto created =
        Monitor::Create(trainer.MakeSubject(testing::Fault::kNone, std::move(before_losses)),
                        options, std::move(exporters));
    if (created.ok()) monitor = *std::move(created);
    return created.status();
  }

  testing::TinyTrainer trainer;
  std::shared_ptr<testing::Recording> recording = std::make_shared<testing::Recording>();
  std::unique_ptr<Monitor> monitor;
};

TEST_F(MonitorRandom, WhatAnotherThreadDrawsDuringCreateIsWhatItWouldHaveDrawn) {
  std::vector<float> drawn;
  at::manual_seed(3);
  const absl::Status status = Create([&] { std::thread([&] { drawn.push_back(Draw()); }).join(); });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(monitor->Stop(std::chrono::seconds(5)).ok());
  drawn.push_back(Draw());
  ASSERT_GT(drawn.size(), 4);
  at::manual_seed(3);
  for (size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(drawn[i], Draw()) << i;
}

TEST_F(MonitorRandom, CreateRefusesAClosureThatSeeds) {
  EXPECT_THAT(std::string(Create([] { at::manual_seed(9); }).message()),
              HasSubstr("losses seeds a default random generator"));
}

TEST_F(MonitorRandom, CreateRefusesAClosureThatSavesSeedsDrawsAndRestores) {
  EXPECT_THAT(std::string(Create(DrawInSecret).message()),
              HasSubstr("losses draws random numbers"));
}

TEST_F(MonitorRandom, ACreateThatFailedLeavesTheGeneratorAsItWas) {
  at::manual_seed(3);
  const std::string before = Bytes(State());
  EXPECT_FALSE(Create([] { at::manual_seed(9); }).ok());
  EXPECT_TRUE(Bytes(State()) == before);
  EXPECT_FALSE(Create([] { Draw(); }).ok());
  EXPECT_TRUE(Bytes(State()) == before);
}

TEST_F(MonitorRandom, AClosureThatBeginsToDrawIsReportedSwitchedOffAndChangesNothing) {
  for (void (*draw)() : {+[] { Draw(); }, &DrawInSecret}) {
    recording = std::make_shared<testing::Recording>();
    auto draws = std::make_shared<std::atomic<bool>>(false);
    ASSERT_TRUE(Create([draws, draw] {
                  if (*draws) draw();
                }).ok());
    const std::string before = Bytes(State());
    *draws = true;
    for (int64_t step = 1; step <= 3; ++step) {
      monitor->OnStep({.step = step, .learning_rate = 1e-2});
      ASSERT_TRUE(recording->WaitForReports(static_cast<size_t>(step)));
    }
    EXPECT_TRUE(Bytes(State()) == before);
    const auto reports = recording->Reports();
    EXPECT_EQ(reports[0]->report.probe_status, ProbeStatus::kFailed);
    EXPECT_THAT(reports[0]->report.probe_status_detail, HasSubstr("losses draws random numbers"));
    EXPECT_EQ(reports[2]->report.probe_status, ProbeStatus::kDisabled);
    EXPECT_EQ(monitor->status().probe_failures_total, 2);
  }
}

}  // namespace monitor_random_test
}  // namespace ptqwatch
