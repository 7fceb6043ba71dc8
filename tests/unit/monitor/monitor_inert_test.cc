#include <gmock/gmock.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "monitor_fixture.h"
#include "support/temp_dir.h"

namespace ptqwatch {
namespace monitor_inert_test {

using testing::Fault;
using ::testing::HasSubstr;
using testing::TempDir;

class CannotStart final : public Exporter {
 public:
  std::string_view name() const override { return "busy"; }
  absl::Status Start(StatusSource*, Control*) override {
    return absl::UnavailableError("port 1 is taken");
  }
  void OnReport(std::shared_ptr<const AnalyzedReport>) override {}
  void Stop(std::chrono::milliseconds) override {}
};

struct MonitorInertTest : MonitorTest {
  MonitorInertTest() {
    SetLogSink(Severity::kError,
               [this](Severity, std::string_view message) { log.append(message).append("\n"); });
    options = Every(1);
    options.on_failure = OnFailure::kInert;
  }
  ~MonitorInertTest() override { SetLogSink(Severity::kWarning, nullptr); }

  std::unique_ptr<Monitor> Make(Fault fault) {
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<CannotStart>());
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
    auto created = Monitor::Create(trainer.MakeSubject(fault), options, std::move(exporters));
    EXPECT_TRUE(created.ok()) << created.status();
    return *std::move(created);
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  MonitorOptions options;
  std::string log;
};

TEST_F(MonitorInertTest, MeasuresWithoutAServerWhoseProgramIsMissing) {
  const TempDir parent;
  setenv("XDG_RUNTIME_DIR", parent.path().c_str(), 1);
  options.serve = ServeOptions{.program = "/nowhere/ptqwatch"};
  {
    const auto unserved = Make(Fault::kNone);
    EXPECT_TRUE(unserved->creation_status().ok());
    EXPECT_EQ(unserved->served().state, ServerState::kFailed);
    EXPECT_THAT(unserved->served().reason, HasSubstr("ServeOptions.program = '/nowhere/ptqwatch'"));
    EXPECT_THAT(log, HasSubstr("to serve it: ptqwatch serve " + parent.path()));
    EXPECT_EQ(recording->Events().back().kind, Event::Kind::kServerFailed);
    EXPECT_FALSE(std::filesystem::is_empty(parent.path()));
  }
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
}

TEST_F(MonitorInertTest, StopsWhatHasBegunIfAServerIsAMust) {
  const TempDir directory;
  options.run_dir = directory.path();
  options.on_failure = OnFailure::kError;
  options.serve = ServeOptions{.program = "/nowhere/ptqwatch"};
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  const auto created =
      Monitor::Create(trainer.MakeSubject(Fault::kNone), options, std::move(exporters));
  EXPECT_TRUE(absl::IsNotFound(created.status())) << created.status();
  EXPECT_TRUE(recording->stopped);
}

TEST_F(MonitorInertTest, StopsWithTheLongestDeadline) {
  struct Patient final : Exporter {
    explicit Patient(std::shared_ptr<std::chrono::milliseconds> time) : given(std::move(time)) {}
    std::string_view name() const override { return "patient"; }
    absl::Status Start(StatusSource*, Control*) override { return absl::OkStatus(); }
    void OnReport(std::shared_ptr<const AnalyzedReport>) override {}
    void Stop(std::chrono::milliseconds deadline) override { *given = deadline; }
    const std::shared_ptr<std::chrono::milliseconds> given;
  };
  const auto given = std::make_shared<std::chrono::milliseconds>(0);
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<Patient>(given));
  auto inert = Monitor::Create(nullptr, options, std::move(exporters));
  ASSERT_TRUE(inert.ok()) << inert.status();
  EXPECT_TRUE((*inert)->Stop(std::chrono::milliseconds::max()).ok());
  EXPECT_GT(*given, std::chrono::hours(1));
}

TEST_F(MonitorInertTest, LetsTrainingStartAndSaysWhyNothingIsMeasured) {
  const TempDir directory;
  options.run_dir = directory.path();
  auto inert = Make(Fault::kLossesThrow);
  EXPECT_THAT(std::string(inert->creation_status().message()), HasSubstr("index out of range"));
  EXPECT_THAT(log, HasSubstr("nothing is measured: "));
  EXPECT_THAT(inert->Describe(), HasSubstr("index out of range"));
  inert->OnStep({.step = 5, .learning_rate = 1, .loss = 2.5});
  EXPECT_FALSE(inert->control().Do(TakeSnapshot{}).ok());
  { const Monitor::IdleScope idle = inert->Idle(); }
  const MonitorStatus status = inert->status();
  EXPECT_EQ(status.health, Health::kInert);
  EXPECT_THAT(status.health_reason, HasSubstr("index out of range"));
  EXPECT_EQ(status.step, 5);
  EXPECT_EQ(status.training_loss_nats, 2.5);
  EXPECT_EQ(inert->latest(), nullptr);
  EXPECT_EQ(inert->Finish(std::chrono::seconds(60)), inert->creation_status());
  EXPECT_TRUE(inert->Stop(std::chrono::seconds(5)).ok());

  const std::vector<Event> events = recording->Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Event::Kind::kExporterFailed);
  EXPECT_EQ(events[1].kind, Event::Kind::kInert);
  EXPECT_TRUE(recording->stopped);
  EXPECT_THAT(Read(directory.path() + "/journal.jsonl"), HasSubstr("\"inert\""));
}

TEST_F(MonitorInertTest, IsSoWithOptionsAndSubjectsThatCannotBe) {
  options.max_overhead = -1;
  EXPECT_THAT(std::string(Make(Fault::kNone)->creation_status().message()),
              HasSubstr("max_overhead = -1"));
  MonitorOptions no_clock;
  no_clock.clock = nullptr;
  std::vector<std::unique_ptr<Exporter>> null;
  null.push_back(nullptr);
  auto nothing = Monitor::Create(nullptr, no_clock, std::move(null));
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ((*nothing)->creation_status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MonitorInertTest, LeavesTheRunDirectoryToWhoeverHasIt) {
  const TempDir directory;
  options.run_dir = directory.path();
  const auto first = Make(Fault::kNone);
  ASSERT_TRUE(first->creation_status().ok()) << first->creation_status();
  auto second = Make(Fault::kNone);
  EXPECT_THAT(std::string(second->creation_status().message()), HasSubstr(directory.path()));
  EXPECT_EQ(second->status().health, Health::kInert);
  second.reset();
  first->OnStep({.step = 1, .learning_rate = 1});
  EXPECT_TRUE(first->Finish(std::chrono::seconds(60)).ok());
  EXPECT_THAT(Read(directory.path() + "/journal.jsonl"), ::testing::Not(HasSubstr("\"inert\"")));
}

TEST_F(MonitorInertTest, MeasuresWithoutAnExporterThatCannotStart) {
  auto works = Make(Fault::kNone);
  EXPECT_TRUE(works->creation_status().ok());
  EXPECT_THAT(log, HasSubstr("exporter busy is left out: port 1 is taken"));
  works->OnStep({.step = 1, .learning_rate = 1});
  EXPECT_TRUE(works->Finish(std::chrono::seconds(60)).ok());
  EXPECT_EQ(recording->Reports().size(), 1u);
}

// Blocks one thread once it is armed.
class HoldingClock final : public Clock {
 public:
  std::chrono::nanoseconds Monotonic() const override {
    if (std::this_thread::get_id() == held.load() && armed.exchange(false)) {
      inside.set_value();
      leave.get_future().wait();
    }
    return real->Monotonic();
  }
  double UnixSeconds() const override { return real->UnixSeconds(); }
  void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& cancelled) override {
    real->SleepFor(duration, cancelled);
  }
  Clock* const real = Clock::Real();
  std::atomic<std::thread::id> held;
  mutable std::atomic<bool> armed{false};
  mutable std::promise<void> inside;
  mutable std::promise<void> leave;
};

TEST_F(MonitorInertTest, LeavesOutAStepWhileAnotherThreadIsInsideOnStep) {
  HoldingClock holding;
  options.clock = &holding;
  options.schedule.every = 100;
  auto works = Make(Fault::kNone);
  works->OnStep({.step = 1, .learning_rate = 1});
  holding.armed = true;
  std::thread other([&] {
    holding.held = std::this_thread::get_id();
    works->OnStep({.step = 2, .learning_rate = 1});
  });
  holding.inside.get_future().wait();
  works->OnStep({.step = 3, .learning_rate = 1});
  EXPECT_EQ(works->Finish(std::chrono::seconds(5)).code(), absl::StatusCode::kFailedPrecondition);
  holding.leave.set_value();
  other.join();
  const MonitorStatus status = works->status();
  EXPECT_EQ(status.step, 2);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedConcurrent)], 2);
  EXPECT_TRUE(works->Stop(std::chrono::seconds(30)).ok());  // before the clock is destroyed
}

}  // namespace monitor_inert_test
}  // namespace ptqwatch
