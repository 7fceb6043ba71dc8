#include "journal/newest_report.h"

#include <filesystem>

#include "journal/rank_directory.h"
#include "support/journal_fixture.h"

namespace ptqwatch::internal {
namespace newest_report_test {

class NewestReportTest : public ::testing::Test {
 protected:
  int64_t Newest() const {
    const auto newest = ReadNewestReport(dir_.path());
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() && *newest ? (*newest)->report.sequence : 0;
  }
  static std::string Line(int64_t sequence) { return ToJson(*ReportNumber(sequence)) + "\n"; }
  static std::string EventLine() {
    return EventToJson({Event::Kind::kResumed, Severity::kInfo, 1, 2, "again"}) + "\n";
  }

  TempDir dir_;
};

TEST_F(NewestReportTest, IsTheLastWholeLineThatIsOne) {
  EXPECT_EQ(Newest(), 0);
  WriteFile(dir_.File("journal.jsonl"), "");
  EXPECT_EQ(Newest(), 0);
  WriteFile(dir_.File("journal.jsonl"), Line(1));
  EXPECT_EQ(Newest(), 1);
  WriteFile(dir_.File("journal.jsonl"),
            Line(1) + Line(2) + "{damage\n\n" + EventLine() + Line(3).substr(0, 50));
  EXPECT_EQ(Newest(), 2);
}

TEST_F(NewestReportTest, MayBeFarFromTheEnd) {
  std::string later;
  while (later.size() < (3 << 20)) later += EventLine();
  WriteFile(dir_.File("journal.jsonl"), Line(6) + Line(7) + later);
  EXPECT_EQ(Newest(), 7);
}

TEST_F(NewestReportTest, MayBeInAnOlderPart) {
  WriteFile(dir_.File("journal-000001.jsonl"), Line(1));
  WriteFile(dir_.File("journal-000002.jsonl"), Line(2) + Line(3));
  WriteFile(dir_.File("journal.jsonl"), EventLine());
  EXPECT_EQ(Newest(), 3);
}

TEST_F(NewestReportTest, TellsTheNewestAttemptOfTheRanks) {
  EXPECT_EQ(NewestAttemptAmongRanks(dir_.path()), 0);
  for (const int rank : {0, 2, 3}) {
    std::filesystem::create_directories(RankDirectory(dir_.path(), rank));
    AnalyzedReport report = *ReportNumber(1);
    report.report.attempt = rank + 4;
    if (rank == 3) continue;  // it has not reported yet
    WriteFile(RankDirectory(dir_.path(), rank) + "/journal.jsonl", ToJson(report) + "\n");
  }
  EXPECT_EQ(NewestAttemptAmongRanks(dir_.path()), 6);
}

}  // namespace newest_report_test
}  // namespace ptqwatch::internal
