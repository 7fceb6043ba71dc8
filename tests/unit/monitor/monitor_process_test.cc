// A trainer and its monitor as in two processes, here on one memory of one process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "monitor/linked_monitor.h"
#include "monitor/process_trainer.h"
#include "monitor_fixture.h"
#include "ptqwatch/metric_catalog.h"
#include "staging/worker_link.h"
#include "support/eventually.h"
#include "support/fake_clock.h"

namespace ptqwatch {
namespace monitor_process_test {

using internal::ProcessTrainer;
using internal::WorkerLink;
using testing::Eventually;
using testing::Recording;
using testing::TinyTrainer;

MonitorOptions OptionsFor(int64_t every) {
  MonitorOptions options = MonitorTest::Every(every);
  options.adapt_plan = false;
  options.schedule.decay_density = 1;  // additional snapshots depend on time
  options.run_id = "run";
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                        {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8}};
  return options;
}

// The monitor's process.
class TestWorker {
 public:
  TestWorker(const ProcessTrainer& trainer, std::unique_ptr<Subject> model,
             const MonitorOptions& options, std::string replaces = "")
      : recording(std::make_shared<Recording>()) {
    auto opened = WorkerLink::Open({.memory = dup(trainer.file()),
                                    .wake = dup(trainer.wake()),
                                    .process = getpid(),
                                    .replaces = std::move(replaces)});
    EXPECT_TRUE(opened.ok()) << opened.status();
    link = *std::move(opened);
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
    auto created = internal::LinkedMonitor::Create(std::move(model), options, std::move(exporters),
                                                   link.get());
    EXPECT_TRUE(created.ok()) << created.status();
    monitor = *std::move(created);
  }
  ~TestWorker() { End(); }
  void Run() {
    runner_ = std::thread([this] { end = link->Run(); });
  }
  void Halt() {
    link->Stop();
    if (runner_.joinable()) runner_.join();
  }
  void End() {
    Halt();
    if (monitor != nullptr) monitor->Stop(std::chrono::seconds(20)).IgnoreError();
    monitor.reset();
  }
  // As the worker and its trainer do it together.
  absl::Status Finish(ProcessTrainer& trainer, std::chrono::seconds timeout) {
    std::atomic<bool> finished{false};
    absl::Status status;
    std::thread worker([&] {
      status = monitor->Finish(timeout);
      finished = true;
    });
    while (!finished) {
      trainer.ServeFinish();
      std::this_thread::yield();
    }
    worker.join();
    return status;
  }

  std::shared_ptr<Recording> recording;
  std::unique_ptr<WorkerLink> link;
  std::unique_ptr<Monitor> monitor;
  WorkerLink::End end = WorkerLink::End::kTrainerGone;

 private:
  std::thread runner_;
};

std::unique_ptr<ProcessTrainer> MakeTrainer(const TinyTrainer& trainer,
                                            const MonitorOptions& options,
                                            int64_t longest_silence_ms = 0) {
  auto made = ProcessTrainer::Create(trainer.MakeSubject(), options,
                                     {.longest_silence_ms = longest_silence_ms});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Removes the fields that depend on time.
Report Timeless(Report report) {
  report.cost = {};
  report.snapshot_time_unix_seconds = 0;
  return report;
}

// Constant, then decaying from step 30 on: a corner.
double RateAt(int64_t step) {
  return step < 30 ? 1e-2 : 1e-2 * static_cast<double>(60 - step) / 30;
}

constexpr int64_t kSteps = 50;

std::vector<Report> ReportsOfOneProcess() {
  TinyTrainer trainer(/*seed=*/5);
  auto recording = std::make_shared<Recording>();
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  auto monitor = Monitor::Create(trainer.MakeSubject(), OptionsFor(20), std::move(exporters));
  EXPECT_TRUE(monitor.ok()) << monitor.status();
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double loss = trainer.Step();
    (*monitor)->OnStep(
        {.step = step, .learning_rate = RateAt(step), .tokens = 7 * step, .loss = loss});
    if (step % 20 != 0) continue;
    EXPECT_TRUE(Eventually([&] {
      return (*monitor)->status().snapshots[0] == (*monitor)->status().reports_total &&
             !(*monitor)->status().busy;
    }));
  }
  EXPECT_TRUE((*monitor)->Finish(std::chrono::seconds(60)).ok());
  std::vector<Report> reports;
  for (const auto& report : recording->Reports()) reports.push_back(Timeless(report->report));
  return reports;
}

TEST(ProcessTrainer, TellsSnapshotsOfOneStepApart) {
  const TinyTrainer tiny(/*seed=*/5);
  const auto trainer = MakeTrainer(tiny, OptionsFor(2));
  internal::SlotPage& slot = trainer->page().slot;
  trainer->page().switches.nothing_to_measure = false;
  std::vector<int64_t> passes;
  for (const int64_t step : {1, 2, 3, 4, 1, 2, 2}) {
    trainer->OnStep({.step = step, .learning_rate = 1e-2});
    if (!slot.filled()) continue;
    passes.push_back(slot.header.pass);
    slot.Drop();
  }
  ASSERT_GE(passes.size(), 3u);
  EXPECT_EQ(passes[0], 0);
  EXPECT_EQ(passes[1], 0);
  EXPECT_EQ(passes[2], 1) << "the step went back";
}

TEST(ProcessMonitor, ReportsAreThoseOfOneProcess) {
  const std::vector<Report> expected = ReportsOfOneProcess();
  TinyTrainer trainer(/*seed=*/5);
  const MonitorOptions options = OptionsFor(20);
  auto shared = MakeTrainer(trainer, options);
  // Another model of the same architecture: its weights must not matter.
  TestWorker worker(*shared, TinyTrainer(/*seed=*/5).MakeSubject(), options);
  worker.Run();
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double loss = trainer.Step();
    shared->OnStep({.step = step, .learning_rate = RateAt(step), .tokens = 7 * step, .loss = loss});
    if (step % 20 != 0) continue;
    EXPECT_TRUE(Eventually([&] {
      return worker.monitor->status().snapshots[0] == worker.monitor->status().reports_total &&
             !worker.monitor->status().busy;
    }));
  }
  EXPECT_TRUE(worker.Finish(*shared, std::chrono::seconds(60)).ok());
  std::vector<Report> reports;
  for (const auto& report : worker.recording->Reports()) {
    reports.push_back(Timeless(report->report));
  }
  ASSERT_EQ(expected.size(), 3u);
  ASSERT_EQ(reports.size(), expected.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_TRUE(reports[i] == expected[i]) << "step " << expected[i].step;
  }
  EXPECT_EQ(reports.back().trigger, SnapshotTrigger::kFinish);
  ASSERT_TRUE(reports.back().curvature.has_value());
  EXPECT_EQ(reports.back().curvature->optimizer, OptimizerKind::kAdamW);
  EXPECT_EQ(*worker.monitor->status().step, kSteps);
  worker.End();
  EXPECT_EQ(worker.end, WorkerLink::End::kStopped);
}

TEST(ProcessMonitor, CountsStepsWithoutAWorkerAndTakesNoSnapshot) {
  TinyTrainer trainer;
  const MonitorOptions options = OptionsFor(1);
  auto shared = MakeTrainer(trainer, options);
  const internal::SlotPage& slot = shared->page().slot;
  shared->OnStep({.step = 1, .learning_rate = 1e-2});
  EXPECT_TRUE(slot.free());
  TestWorker worker(*shared, trainer.MakeSubject(), options);
  shared->OnStep({.step = 2, .learning_rate = 1e-2});
  EXPECT_TRUE(slot.has_taken(2));
  shared->WorkerEnded();
  shared->OnStep({.step = 3, .learning_rate = 1e-2});
  const MonitorStatus status = worker.monitor->status();
  EXPECT_EQ(status.steps_total, 3);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedPaused)], 2);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kTaken)], 1);
}

// Steps before the worker is ready, which has the past of the run, come after that past.
TEST(ProcessMonitor, ALateWorkerBringsThePastOfTheRun) {
  testing::TempDir directory;
  MonitorOptions options = OptionsFor(20);
  options.run_dir = directory.path();
  const auto run = [&](int64_t from, int64_t to, bool late) {
    TinyTrainer trainer;
    auto shared = MakeTrainer(trainer, options);
    std::unique_ptr<TestWorker> worker;
    for (int64_t step = from; step <= to; ++step) {
      if (worker == nullptr && (!late || step == from + 2)) {
        worker = std::make_unique<TestWorker>(*shared, trainer.MakeSubject(), options);
        worker->Run();
      }
      trainer.Step();
      shared->OnStep({.step = step, .learning_rate = RateAt(step)});
    }
    EXPECT_TRUE(worker->Finish(*shared, std::chrono::seconds(60)).ok());
    return worker->recording->Reports().back()->report;
  };
  EXPECT_EQ(run(1, 40, false).decay_onset_step, 31);
  const Report resumed = run(41, 45, true);
  EXPECT_EQ(resumed.lr_phase, LrPhase::kDecay);
  EXPECT_EQ(resumed.decay_onset_step, 31);
}

// The digest of the first snapshot.
std::string DigestOfOneProcess(const MonitorOptions& options) {
  TinyTrainer trainer;
  auto monitor = Monitor::Create(trainer.MakeSubject(), options);
  EXPECT_TRUE(monitor.ok()) << monitor.status();
  for (int64_t step = 1; step <= options.schedule.every; ++step) {
    trainer.Step();
    (*monitor)->OnStep({.step = step, .learning_rate = 1e-2});
  }
  EXPECT_TRUE((*monitor)->Finish(std::chrono::seconds(60)).ok());
  return (*monitor)->latest()->report.snapshot_digest;
}

// A trainer whose workers end in the middle of a measurement.
class InterruptedRun : public ::testing::Test {
 protected:
  InterruptedRun() { SetLogSink(Severity::kError, nullptr); }
  void StepTo(int64_t last) {
    while (step_ < last) {
      trainer_.Step();
      shared_->OnStep({.step = ++step_, .learning_rate = 1e-2});
    }
  }
  // A worker whose losses wait for the gate.
  std::unique_ptr<TestWorker> StopsAtGate(std::string replaces = "") {
    auto worker = std::make_unique<TestWorker>(
        *shared_, trainer_.MakeSubject(testing::Fault::kNone, [gate = gate_] { (*gate)(); }),
        options_, std::move(replaces));
    worker->Run();
    gate_->Set(false);
    return worker;
  }
  // Ends a worker that waits at the gate. It reports nothing.
  void End(TestWorker& worker) {
    gate_->AwaitCaller();  // it has freed the slot
    std::thread opener([&] {
      EXPECT_TRUE(Eventually([&] { return worker.monitor->status().health == Health::kStopped; }));
      gate_->Set(true);
    });
    worker.monitor->Stop(std::chrono::milliseconds(50)).IgnoreError();
    opener.join();
    worker.Halt();
    // Its thread, which was left behind.
    EXPECT_TRUE(Eventually([&] { return !worker.monitor->status().busy; }));
    shared_->WorkerEnded();
  }
  std::unique_ptr<TestWorker> Works() {
    auto worker =
        std::make_unique<TestWorker>(*shared_, trainer_.MakeSubject(), options_, "the first ended");
    worker->Run();
    return worker;
  }

  TinyTrainer trainer_;
  const MonitorOptions options_ = OptionsFor(10);
  const std::unique_ptr<ProcessTrainer> shared_ = MakeTrainer(trainer_, options_);
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  int64_t step_ = 0;
};

TEST_F(InterruptedRun, AnotherWorkerMeasuresWhatTheFirstHadNotBegun) {
  auto first = StopsAtGate();
  StepTo(10);
  gate_->AwaitCaller();  // measures step 10 and has freed the slot
  StepTo(20);
  EXPECT_TRUE(Eventually([&] { return shared_->page().slot.filled(); }));
  End(*first);
  ASSERT_TRUE(shared_->page().slot.filled());

  auto second = Works();
  ASSERT_TRUE(second->recording->WaitForReports(1));
  EXPECT_EQ(second->recording->Reports()[0]->report.step, 20);
  EXPECT_EQ(shared_->lost(), 1);  // step 10
  ASSERT_FALSE(second->recording->Events().empty());
  EXPECT_EQ(second->recording->Events()[0].kind, Event::Kind::kWorkerFailed);
  EXPECT_EQ(second->recording->Events()[0].message, "the first ended");
  StepTo(30);
  ASSERT_TRUE(second->recording->WaitForReports(2));
  EXPECT_EQ(second->recording->Reports()[1]->report.step, 30);
  EXPECT_EQ(shared_->lost(), 1);
}

TEST_F(InterruptedRun, AnotherWorkerMeasuresWhatTheFirstWasMeasuring) {
  auto first = StopsAtGate();
  StepTo(13);
  End(*first);
  ASSERT_TRUE(shared_->page().slot.free());
  StepTo(15);  // the weights go on

  auto second = Works();
  ASSERT_TRUE(second->recording->WaitForReports(1));
  const Report again = second->recording->Reports()[0]->report;
  EXPECT_EQ(again.step, 10);
  EXPECT_EQ(shared_->lost(), 0);
  StepTo(20);
  ASSERT_TRUE(second->recording->WaitForReports(2));
  EXPECT_EQ(second->recording->Reports()[1]->report.step, 20);
  EXPECT_EQ(again.snapshot_digest, DigestOfOneProcess(options_));
}

TEST_F(InterruptedRun, ASnapshotThatEndsTwoWorkersIsGivenUp) {
  auto first = StopsAtGate();
  StepTo(10);
  End(*first);
  auto second = StopsAtGate("the first ended");
  End(*second);
  EXPECT_EQ(shared_->lost(), 0);

  auto third = Works();
  EXPECT_TRUE(Eventually([&] { return shared_->lost() == 1; }));
  EXPECT_TRUE(shared_->page().slot.free());
  StepTo(20);
  ASSERT_TRUE(third->recording->WaitForReports(1));
  EXPECT_EQ(third->recording->Reports()[0]->report.step, 20);
  EXPECT_EQ(shared_->lost(), 1);
}

TEST(ProcessMonitor, ChargesTheServerOfTheTrainer) {
  TinyTrainer trainer;
  testing::FakeClock clock;  // stands still, so that copies take no time
  MonitorOptions options = OptionsFor(1);
  options.clock = &clock;
  // On one core, which the trainer uses.
  cpu_set_t before;
  cpu_set_t one;
  CPU_ZERO(&one);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const absl::Cleanup restore = [&] { sched_setaffinity(0, sizeof(before), &before); };
  auto shared = MakeTrainer(trainer, options);
  TestWorker worker(*shared, trainer.MakeSubject(), options);
  // This process stands for the server.
  shared->page().server.Write({.status = {.state = ServerState::kServing}, .process = getpid()});
  worker.Run();
  ASSERT_TRUE(
      Eventually([&] { return worker.monitor->status().server.state == ServerState::kServing; }));
  // Longer than the first window in which the monitor looks for a spare core.
  for (const clock_t until = std::clock() + CLOCKS_PER_SEC / 5; std::clock() < until;) continue;
  shared->OnStep({.step = 1, .learning_rate = 1e-2});
  ASSERT_TRUE(worker.recording->WaitForReports(1));
  clock.Wait(std::chrono::seconds(1));
  EXPECT_GT(worker.monitor->status().overhead_ratio, 0.0);
}

TEST(ProcessMonitor, AForkedChildTouchesNothing) {
  TinyTrainer trainer;
  const MonitorOptions options = OptionsFor(1);
  auto shared = MakeTrainer(trainer, options);
  const pid_t child = fork();
  if (child == 0) {
    shared->OnStep({.step = 1, .learning_rate = 1e-2});
    shared->ServeFinish();
    shared.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(shared->page().board.step());
}

TEST(ProcessMonitor, RefusesMemoryThatIsNotATrainers) {
  const int file = memfd_create("other", 0);
  EXPECT_THAT(std::string(WorkerLink::Open({.memory = dup(file)}).status().message()),
              ::testing::HasSubstr("is not the memory of a trainer"));
  ASSERT_EQ(ftruncate(file, 1 << 22), 0);
  EXPECT_THAT(std::string(WorkerLink::Open({.memory = dup(file)}).status().message()),
              ::testing::HasSubstr("another version"));
  close(file);
}

TEST(ProcessMonitor, AWorkerSeesTheTrainersEnd) {
  TinyTrainer trainer;
  const MonitorOptions options = OptionsFor(1);
  auto shared = MakeTrainer(trainer, options);
  int gone[2];
  ASSERT_EQ(pipe2(gone, O_CLOEXEC), 0);
  auto link = WorkerLink::Open({.memory = dup(shared->file()),
                                .wake = dup(shared->wake()),
                                .trainer = gone[0]});  // like a pidfd, readable at the end
  ASSERT_TRUE(link.ok());
  close(gone[1]);
  EXPECT_EQ((*link)->Run(), WorkerLink::End::kTrainerGone);
}

TEST(ProcessMonitor, AWorkerEndsIfItsLossesDoNotReturn) {
  SetLogSink(Severity::kError, nullptr);
  TinyTrainer trainer;
  const MonitorOptions options = OptionsFor(1);
  auto shared = MakeTrainer(trainer, options, /*longest_silence_ms=*/50);
  auto gate = std::make_shared<Gate>();
  auto opened = WorkerLink::Open(
      {.memory = dup(shared->file()), .wake = dup(shared->wake()), .process = getpid()});
  ASSERT_TRUE(opened.ok());
  auto monitor = internal::LinkedMonitor::Create(
      trainer.MakeSubject(testing::Fault::kNone, [gate] { (*gate)(); }), options, {},
      opened->get());
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  gate->Set(false);
  shared->OnStep({.step = 1, .learning_rate = 1e-2});
  EXPECT_EQ((*opened)->Run(), WorkerLink::End::kSilent);
  gate->Set(true);
  (*monitor)->Stop(std::chrono::seconds(20)).IgnoreError();
}

}  // namespace monitor_process_test
}  // namespace ptqwatch
