#include "journal/run_history.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/journal_fixture.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace run_history_test {

std::string Line(int64_t sequence, int attempt = 1, const std::string& run_id = "run-1") {
  AnalyzedReport report = SampleReport();
  report.report.sequence = sequence;
  report.report.attempt = attempt;
  report.report.run_id = run_id;
  return ToJson(report);
}

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunHistory Read(const std::string& journal) {
    WriteFile(dir_.File(kJournalFileName), journal);
    absl::StatusOr<RunHistory> history = ReadRunHistory(dir_.path());
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : RunHistory{};
  }
  std::vector<int64_t> Sequences(const RunHistory& history) {
    std::vector<int64_t> sequences;
    for (const AnalyzedReport& report : history.reports) {
      sequences.push_back(report.report.sequence);
    }
    return sequences;
  }
  TempDir dir_;
};

TEST_F(RunDirectoryTest, OfANewRunIsEmpty) {
  const absl::StatusOr<RunHistory> history = ReadRunHistory(dir_.path());
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->run_id, "");
  EXPECT_EQ(history->attempts, 0);
  EXPECT_EQ(history->last_sequence, 0);
  EXPECT_TRUE(history->reports.empty());
}

TEST_F(RunDirectoryTest, ReadsAJournal) {
  const RunHistory history = Read(Line(1) + "\n" + Line(3, 2) + "\n" + Line(2, 1, "run-2") + "\n");
  EXPECT_EQ(Sequences(history), (std::vector<int64_t>{1, 3, 2}));
  EXPECT_EQ(history.run_id, "run-2");
  EXPECT_EQ(history.attempts, 2);
  EXPECT_EQ(history.last_sequence, 3);
  EXPECT_EQ(history.unreadable_lines, 0);
  AnalyzedReport expected = SampleReport();
  expected.report.sequence = 1;
  expected.report.attempt = 1;
  EXPECT_EQ(history.reports[0], WithoutLayers(expected));
}

TEST_F(RunDirectoryTest, ReadsAnEmptyJournal) {
  EXPECT_TRUE(Read("").reports.empty());
  EXPECT_EQ(Read("\n \n\r\n").unreadable_lines, 0);
}

TEST_F(RunDirectoryTest, ReadsALastLineWithoutItsNewline) {
  const RunHistory history = Read(Line(1) + "\n" + Line(2));
  EXPECT_EQ(Sequences(history), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(history.unreadable_lines, 0);
}

TEST_F(RunDirectoryTest, SkipsALineCutOffByACrash) {
  const std::string whole = Line(2);
  for (size_t size : {size_t{1}, whole.size() / 2, whole.size() - 1}) {
    const RunHistory at_the_end = Read(Line(1) + "\n" + whole.substr(0, size));
    EXPECT_EQ(Sequences(at_the_end), (std::vector<int64_t>{1}));
    EXPECT_EQ(at_the_end.unreadable_lines, 1);
    const RunHistory in_the_middle =
        Read(Line(1) + "\n" + whole.substr(0, size) + "\n" + Line(3) + "\n");
    EXPECT_EQ(Sequences(in_the_middle), (std::vector<int64_t>{1, 3}));
    EXPECT_EQ(in_the_middle.unreadable_lines, 1);
  }
}

TEST_F(RunDirectoryTest, SkipsDamagedLines) {
  const RunHistory history = Read("garbage\n" + Line(1) + "\n{\"step\": \"x\"}\n[]\n\xff\xfe\n" +
                                  Line(2) + "\n" + Line(3) + Line(4) + "\n");
  EXPECT_EQ(Sequences(history), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(history.unreadable_lines, 5);
}

TEST_F(RunDirectoryTest, SkipsNulsThatACrashLeftAtTheEnd) {
  const std::string nuls(300000, '\0');
  EXPECT_EQ(Sequences(Read(Line(1) + "\n" + nuls)), (std::vector<int64_t>{1}));
  const RunHistory resumed = Read(Line(1) + "\n" + nuls + "\n" + Line(2) + "\n");
  EXPECT_EQ(Sequences(resumed), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(resumed.unreadable_lines, 1);
}

TEST_F(RunDirectoryTest, ReadsLinesLongerThanItsBuffer) {
  AnalyzedReport report = SampleReport();
  report.verdict.summary.assign(1000000, 'x');
  const RunHistory history = Read(Line(1) + "\n" + ToJson(report) + "\n" + Line(3) + "\n");
  ASSERT_EQ(history.reports.size(), 3u);
  EXPECT_EQ(history.reports[1], WithoutLayers(report));
}

TEST_F(RunDirectoryTest, SkipsALineBeyondTheCap) {
  const std::string huge(size_t{17} << 20, 'x');
  const RunHistory history = Read(Line(1) + "\n" + huge + "\n" + Line(2) + "\n");
  EXPECT_EQ(Sequences(history), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(history.unreadable_lines, 1);
}

// The next attempt would count on from them, past the largest integer.
TEST_F(RunDirectoryTest, SkipsNumbersThatCannotBe) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const RunHistory history =
      Read(Line(1) + "\n" + Line(largest) + "\n" + Line(-5) + "\n" +
           Line(2, std::numeric_limits<int>::max()) + "\n" + Line(3, -1) + "\n");
  EXPECT_EQ(Sequences(history), (std::vector<int64_t>{1}));
  EXPECT_EQ(history.unreadable_lines, 4);
  EXPECT_EQ(history.attempts, 1);
}

// A parsed bracket takes a hundred times its byte.
TEST_F(RunDirectoryTest, SkipsALineOfBrackets) {
  const RunHistory history = Read(std::string(size_t{8} << 20, '[') + "\n" + Line(2) + "\n");
  EXPECT_EQ(Sequences(history), (std::vector<int64_t>{2}));
}

TEST_F(RunDirectoryTest, FollowsNoLinkToAJournal) {
  WriteFile(dir_.File("elsewhere"), Line(1) + "\n");
  std::filesystem::create_symlink(dir_.File("elsewhere"), dir_.File(kJournalFileName));
  EXPECT_FALSE(ReadRunHistory(dir_.path()).ok());
}

TEST_F(RunDirectoryTest, FailsIfTheJournalIsNotAFile) {
  std::filesystem::create_directory(dir_.File(kJournalFileName));
  const absl::StatusOr<RunHistory> history = ReadRunHistory(dir_.path());
  EXPECT_FALSE(history.ok());
  EXPECT_THAT(std::string(history.status().message()), HasSubstr(dir_.File(kJournalFileName)));
}

}  // namespace run_history_test
}  // namespace ptqwatch::internal
