// The state that an attempt of a run leaves in the run directory for the next attempt.
#include <gmock/gmock.h>

#include <mutex>
#include <thread>

#include "journal/run_history.h"
#include "probes/probe_state_file.h"
#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace monitor_resume_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;
using testing::TinyTrainer;

struct MonitorResumeTest : ::testing::Test {
  MonitorResumeTest() {
    for (int i = 0; i < 3; ++i) trainer.Step();
    SetLogSink(Severity::kWarning, [this](Severity, std::string_view message) {
      std::lock_guard<std::mutex> lock(mutex);
      log.append(message).append("\n");
    });
  }
  ~MonitorResumeTest() override { SetLogSink(Severity::kWarning, nullptr); }

  absl::StatusOr<std::unique_ptr<Monitor>> Try(const std::string& run_dir, MonitorOptions options) {
    options.on_failure = OnFailure::kError;
    options.schedule.every = 1'000'000;
    options.duty_cycle = 1.0;
    options.curvature.trace_relative_stderr = 100;  // 8 probe vectors
    options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8}};
    options.run_dir = run_dir;
    return Monitor::Create(trainer.MakeSubject(), options);
  }
  std::unique_ptr<Monitor> Make(const std::string& run_dir, MonitorOptions options = {}) {
    auto monitor = Try(run_dir, std::move(options));
    EXPECT_TRUE(monitor.ok()) << monitor.status();
    return *std::move(monitor);
  }
  static Report Measure(Monitor& monitor, int64_t step) {
    monitor.OnStep({.step = step, .learning_rate = 1e-2});
    EXPECT_TRUE(monitor.Finish(std::chrono::seconds(60)).ok());
    return monitor.latest()->report;
  }
  std::string Log() {
    std::lock_guard<std::mutex> lock(mutex);
    return log;
  }

  TinyTrainer trainer;
  std::mutex mutex;
  std::string log;
};

TEST_F(MonitorResumeTest, MeasuresWhatAnUninterruptedRunWouldHave) {
  const TempDir whole_dir;
  const TempDir cut_dir;
  auto whole = Make(whole_dir.path());
  auto cut = Make(cut_dir.path());
  Measure(*whole, 3);
  const std::string run_id = Measure(*cut, 3).run_id;
  ASSERT_TRUE(cut->Stop(std::chrono::seconds(5)).ok());
  for (int i = 0; i < 3; ++i) trainer.Step();
  cut = Make(cut_dir.path());
  const Report expected = Measure(*whole, 6);
  const Report resumed = Measure(*cut, 6);
  EXPECT_EQ(expected.probe_state_sequence, 1);
  EXPECT_EQ(resumed.probe_state_sequence, 1);
  EXPECT_EQ(resumed.sequence, 2);
  EXPECT_EQ(resumed.run_id, run_id);
  ASSERT_TRUE(resumed.curvature && resumed.curvature->edge_of_stability_ratio);
  EXPECT_TRUE(resumed.curvature == expected.curvature);
  EXPECT_TRUE(resumed.quantization == expected.quantization);
  EXPECT_THAT(Log(), IsEmpty());

  // Without the state the result differs.
  const TempDir cold_dir;
  const Report cold = Measure(*Make(cold_dir.path()), 6);
  EXPECT_EQ(cold.probe_state_sequence, 0);
  EXPECT_NE(cold.curvature->top_eigenvalue, resumed.curvature->top_eigenvalue);
}

// run_dir alone, without an exporter or a run_id, is enough to continue the run.
TEST_F(MonitorResumeTest, KeepsAndReadsTheJournalOfItsDirectory) {
  const TempDir directory;
  const Report first = Measure(*Make(directory.path()), 3);
  const Report second = Measure(*Make(directory.path()), 4);
  EXPECT_FALSE(first.run_id.empty());
  EXPECT_EQ(second.run_id, first.run_id);
  EXPECT_EQ(second.attempt, 2);
  EXPECT_EQ(second.sequence, 2);
  EXPECT_EQ(second.probe_state_sequence, 1);
  EXPECT_THAT(Log(), IsEmpty());
  const auto history = internal::ReadRunHistory(directory.path());
  ASSERT_TRUE(history.ok()) << history.status();
  ASSERT_EQ(history->reports.size(), 2u);
  EXPECT_EQ(history->reports[0].report.quantization[0].delta_nats,
            first.quantization[0].delta_nats);
  EXPECT_EQ(history->reports[1].report.sequence, second.sequence);
  EXPECT_EQ(history->unreadable_lines, 0);
}

TEST_F(MonitorResumeTest, StartsColdFromAFileThatIsNotAState) {
  const TempDir directory;
  testing::WriteFile(directory.File(internal::kStateFileName), "{\"cut off");
  auto monitor = Make(directory.path());
  EXPECT_THAT(Log(), HasSubstr("cold start"));
  EXPECT_THAT(Log(), HasSubstr("state.safetensors"));
  EXPECT_EQ(Measure(*monitor, 3).probe_state_sequence, 0);
  EXPECT_TRUE(monitor->Stop(std::chrono::seconds(60)).ok());
  // The damaged file has been replaced.
  EXPECT_TRUE(internal::ProbeStateFile::Open(directory.path()).ok());
  EXPECT_EQ(monitor->status().state_write_failures_total, 0);
}

// The state may be gigabytes, and the trainer writes to the same disk.
TEST_F(MonitorResumeTest, WritesTheStateNotAtEveryReportButAtTheEnd) {
  const TempDir directory;
  const auto written = [&]() -> int64_t {
    const auto file = internal::ProbeStateFile::Open(directory.path());
    return file.ok() ? file->sequence() : 0;
  };
  auto monitor = Make(directory.path());
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(monitor->control().Do(TakeSnapshot{}).ok());
    // The request reaches OnStep through the monitor thread.
    while (monitor->status().reports_total < step) {
      monitor->OnStep({.step = step, .learning_rate = 1e-2});
      std::this_thread::yield();
    }
    ASSERT_TRUE(monitor->Finish(std::chrono::seconds(60)).ok());
  }
  EXPECT_EQ(monitor->latest()->report.sequence, 2);
  EXPECT_TRUE(testing::Eventually([&] { return written() == 1; }));
  EXPECT_TRUE(monitor->Stop(std::chrono::seconds(60)).ok());
  EXPECT_EQ(written(), 2);
}

TEST_F(MonitorResumeTest, StartsColdIfTheMeasurementsHaveChanged) {
  const TempDir directory;
  Measure(*Make(directory.path()), 3);
  MonitorOptions options;
  options.seed = 5;
  options.allow_changed_run = true;
  auto monitor = Make(directory.path(), options);
  EXPECT_THAT(Log(), HasSubstr("the fingerprint differs"));
  const Report report = Measure(*monitor, 4);
  EXPECT_EQ(report.probe_state_sequence, 0);
  EXPECT_EQ(report.sequence, 2);
}

TEST_F(MonitorResumeTest, RefusesADirectoryOfAChangedRunWithBothWaysOut) {
  const TempDir directory;
  Measure(*Make(directory.path()), 3);
  MonitorOptions options;
  options.seed = 5;
  const absl::Status status = Try(directory.path(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string why(status.message());
  EXPECT_THAT(why, HasSubstr(directory.path()));
  EXPECT_THAT(why, HasSubstr("give this run a directory of its own"));
  EXPECT_THAT(why, HasSubstr("MonitorOptions.allow_changed_run"));
}

TEST_F(MonitorResumeTest, StartsColdFromTheStateOfAnotherRun) {
  const TempDir directory;
  MonitorOptions options;
  options.run_id = "one";
  Measure(*Make(directory.path(), options), 3);
  options.run_id = "two";
  auto monitor = Make(directory.path(), options);
  EXPECT_THAT(Log(), HasSubstr("it belongs to run one, not to two"));
  const Report report = Measure(*monitor, 4);
  EXPECT_EQ(report.probe_state_sequence, 0);
  EXPECT_EQ(report.sequence, 2);  // counts the lines of the journal
}

TEST_F(MonitorResumeTest, CountsStatesThatCouldNotBeWritten) {
  const TempDir directory;
  std::filesystem::create_directories(directory.File(internal::kStateFileName) + "/occupied");
  auto monitor = Make(directory.path());
  const Report report = Measure(*monitor, 3);
  EXPECT_EQ(report.probe_status, ProbeStatus::kOk);
  EXPECT_TRUE(
      testing::Eventually([&] { return monitor->status().state_write_failures_total == 1; }));
  EXPECT_THAT(Log(), HasSubstr("state of the probes was not kept"));
  EXPECT_EQ(Measure(*monitor, 4).probe_state_sequence, 1);
}

}  // namespace monitor_resume_test
}  // namespace ptqwatch
