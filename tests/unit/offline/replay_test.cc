#include "ptqwatch/offline/replay.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ptqwatch/event.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch {
namespace replay_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

// A monitor's line for a snapshot whose error is `delta`, with another verdict.
std::string Line(int64_t step, double delta) {
  AnalyzedReport analyzed = testing::SampleReport();
  analyzed.report.step = step;
  analyzed.report.sequence = step / 100;
  analyzed.report.lr_phase = LrPhase::kStable;
  analyzed.report.decay_onset_step.reset();
  analyzed.report.rolled_back = false;
  analyzed.report.quantization = {testing::SampleQuantization(QuantizationMethod::kGptq, 3, delta)};
  analyzed.verdict = {};
  analyzed.verdict.state = VerdictState::kSpike;
  analyzed.verdict.summary = "of the journal";
  return ToJson(analyzed) + "\n";
}

std::string EventLine() {
  Event event;
  event.kind = Event::Kind::kStopped;
  return EventToJson(event) + "\n";
}

struct ReplayTest : ::testing::Test {
  absl::StatusOr<ReplayedJournal> Run(const std::string& path) {
    reports.clear();
    return ReplayJournal(path, [this](const AnalyzedReport& report) {
      reports.push_back(report);
      return std::ssize(reports) != stop_after;
    });
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const AnalyzedReport& report : reports) steps.push_back(report.report.step);
    return steps;
  }
  void ExpectFailure(const std::string& path, absl::StatusCode code, const std::string& says) {
    const auto result = Run(path);
    EXPECT_EQ(result.status().code(), code);
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("'" + path + "'"), HasSubstr(says)));
    EXPECT_TRUE(reports.empty());
  }

  TempDir directory;
  std::vector<AnalyzedReport> reports;
  std::ptrdiff_t stop_after = -1;
};

TEST_F(ReplayTest, RecomputesTheVerdictsOfAFile) {
  const std::string path = directory.File("old.jsonl");
  WriteFile(path, Line(100, 0.1) + EventLine() + Line(200, 0.11) + Line(300, 0.1));
  const auto result = Run(path);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->reports, 3);
  EXPECT_EQ(result->unreadable_lines, 0);
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300));
  Replay replay;
  for (const AnalyzedReport& report : reports) {
    EXPECT_EQ(report.verdict, replay.Add(report.report));
    EXPECT_NE(report.verdict.summary, "of the journal");
  }
}

TEST_F(ReplayTest, ReadsAllPartsOfARunDirectoryInOrder) {
  WriteFile(directory.File("journal.jsonl"), Line(400, 0.1));
  WriteFile(directory.File("journal-000002.jsonl"), Line(300, 0.1));
  WriteFile(directory.File("journal-000001.jsonl"), Line(100, 0.1) + Line(200, 0.1));
  WriteFile(directory.File("status.json"), "{}");
  ASSERT_TRUE(Run(directory.path()).ok());
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300, 400));
}

TEST_F(ReplayTest, SkipsAndCountsDamagedLines) {
  const std::string path = directory.File("journal.jsonl");
  // The last line has no end, and is whole; the one in the middle was cut off.
  std::string last = Line(300, 0.1);
  last.pop_back();
  WriteFile(path, Line(100, 0.1) + Line(200, 0.1).substr(0, 500) + "\n{}x\n\n" + last);
  const auto result = Run(path);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->unreadable_lines, 2);
  EXPECT_THAT(Steps(), ElementsAre(100, 300));
}

TEST_F(ReplayTest, ReadsVerdictsOfEarlierVersions) {
  std::string line = Line(100, 0.1);
  const size_t at = line.find("\"spike\"");
  ASSERT_NE(at, std::string::npos);
  for (const char* state : {"\"collecting\"", "\"degrading\"", "\"degraded\""}) {
    std::string old = line;
    old.replace(at, 7, state);
    const std::string path = directory.File("old.jsonl");
    WriteFile(path, old);
    ASSERT_TRUE(Run(path).ok()) << state;
    EXPECT_EQ(reports[0].verdict.state, VerdictState::kWarmingUp);
  }
}

TEST_F(ReplayTest, EndsWhereItIsToldTo) {
  const std::string path = directory.File("journal.jsonl");
  WriteFile(path, Line(100, 0.1) + Line(200, 0.1) + Line(300, 0.1));
  stop_after = 2;
  const auto result = Run(path);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->reports, 2);
  EXPECT_THAT(Steps(), ElementsAre(100, 200));
}

TEST_F(ReplayTest, SaysWhatIsWrongWithTheArgument) {
  ExpectFailure(directory.File("none"), absl::StatusCode::kNotFound, "cannot open");
  ExpectFailure(directory.path(), absl::StatusCode::kNotFound, "there is no journal in");
  WriteFile(directory.File("empty"), "");
  ExpectFailure(directory.File("empty"), absl::StatusCode::kFailedPrecondition, "is empty");
  WriteFile(directory.File("events"), EventLine() + EventLine());
  ExpectFailure(directory.File("events"), absl::StatusCode::kFailedPrecondition,
                "has no reports, only 2 events");
  WriteFile(directory.File("text"), "hello\nworld\n");
  ExpectFailure(directory.File("text"), absl::StatusCode::kFailedPrecondition,
                "has no reports: 2 lines are not journal lines");
}

TEST_F(ReplayTest, FollowsALinkToAFile) {
  WriteFile(directory.File("journal.jsonl"), Line(100, 0.1));
  std::filesystem::create_symlink("journal.jsonl", directory.File("link"));
  EXPECT_TRUE(Run(directory.File("link")).ok());
  EXPECT_THAT(Steps(), ElementsAre(100));
}

TEST(Replay, KeepsBranchesApart) {
  const auto report = [](const std::string& branch, int64_t step, double delta) {
    Report made;
    made.fingerprint = "f";
    made.branch = branch;
    made.step = step;
    made.sequence = step;
    made.learning_rate = 1e-3;
    made.lr_phase = LrPhase::kStable;
    made.probe_status = ProbeStatus::kOk;
    made.probe_loss_nats = 2;
    made.quantization = {testing::SampleQuantization(QuantizationMethod::kGptq, 3, delta)};
    return made;
  };
  Replay alone, together;
  Verdict expected, last;
  for (int64_t step = 1; step <= 12; ++step) {
    expected = alone.Add(report("a", step, 0.1));
    last = together.Add(report("a", step, 0.1));
    together.Add(report("b", step, 0.5));
  }
  EXPECT_EQ(expected.state, VerdictState::kHealthy);
  EXPECT_EQ(last, expected);
}

}  // namespace replay_test
}  // namespace ptqwatch
