#include "journal/journal_writer.h"

#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <string>

#include "base/strings.h"
#include "journal/report_line.h"
#include "support/journal_fixture.h"

namespace ptqwatch::internal {
namespace journal_writer_test {

TEST_F(JournalWriterTest, WritesOneLineAReport) {
  auto exporter = MakeJournalWriter();
  EXPECT_EQ(exporter->name(), "journal");
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  for (int i = 1; i <= 50; ++i) exporter->OnReport(ReportNumber(i));
  exporter->Stop(seconds(20));
  const RunHistory history = History();
  ASSERT_EQ(history.reports.size(), 50u);
  EXPECT_EQ(history.reports[49], WithoutLayers(*ReportNumber(50)));
  EXPECT_EQ(history.unreadable_lines, 0);
  EXPECT_EQ(ReadFile(path()).back(), '\n');
  EXPECT_TRUE(source_.status().dropped_reports.empty());
}

TEST_F(JournalWriterTest, WritesEventsAsLinesOfTheirOwnKind) {
  const Event event{Event::Kind::kProbeFailed, Severity::kWarning, 7, 1.5, "no memory"};
  auto exporter = MakeJournalWriter();
  exporter->OnEvent(event);  // before Start: nowhere to go
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  exporter->OnEvent(event);
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(seconds(20));
  exporter->OnEvent(event);
  EXPECT_EQ(ReadFile(path()), ReportLine(*ReportNumber(1)) + "\n" + EventToJson(event) + "\n" +
                                  ReportLine(*ReportNumber(2)) + "\n");
  EXPECT_THAT(Sequences(), ElementsAre(1, 2));
  EXPECT_EQ(History().unreadable_lines, 0);
}

// A line that is longer than readers accept would lose the whole report.
TEST_F(JournalWriterTest, LeavesOutMoreLayersThanALineHolds) {
  LogCatcher log;
  AnalyzedReport large = *ReportNumber(1);
  LayerQuantization layer = large.report.quantization.at(0).layers.at(0);
  large.report.quantization[0].layers.clear();
  for (int i = 0; i < 10'000; ++i) {
    layer.name = StrCat(i, std::string(2000, 'x'));
    large.report.quantization[0].layers.push_back(layer);
  }
  auto exporter = MakeJournalWriter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(std::make_shared<const AnalyzedReport>(large));
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(seconds(20));
  const RunHistory history = History();
  EXPECT_EQ(history.unreadable_lines, 0);
  ASSERT_EQ(history.reports.size(), 2u);
  EXPECT_EQ(history.reports[0], WithoutLayers(large));
  EXPECT_THAT(log.WaitForFirst(), HasSubstr("without its layers"));
}

TEST_F(JournalWriterTest, WritesWithoutWaitingForStop) {
  std::promise<void> written;
  auto exporter = MakeJournalWriter([&](int file, const void* bytes, size_t size) {
    const ssize_t count = ::write(file, bytes, size);
    written.set_value();
    return count;
  });
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  written.get_future().wait();
  EXPECT_THAT(Sequences(), ElementsAre(1));
  exporter->Stop(seconds(20));
}

TEST_F(JournalWriterTest, AppendsOnResume) {
  for (int attempt = 1; attempt <= 3; ++attempt) {
    auto exporter = MakeJournalWriter();
    ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
    exporter->OnReport(ReportNumber(attempt));
    exporter->Stop(seconds(20));
  }
  EXPECT_THAT(Sequences(), ElementsAre(1, 2, 3));
}

TEST_F(JournalWriterTest, EndsALineThatACrashCutOff) {
  const std::string line = ToJson(*ReportNumber(1));
  const std::string nuls(4096, '\0');
  for (const std::string& tail : {line.substr(0, line.size() / 2), nuls}) {
    WriteFile(path(), line + "\n" + tail);
    auto exporter = MakeJournalWriter();
    ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
    EXPECT_EQ(ReadFile(path()), line + "\n" + tail + "\n");
    exporter->OnReport(ReportNumber(2));
    exporter->Stop(seconds(20));
    EXPECT_THAT(Sequences(), ElementsAre(1, 2));
    EXPECT_EQ(History().unreadable_lines, 1);
  }
}

TEST_F(JournalWriterTest, KeepsAWholeLastLineThatLacksItsNewline) {
  WriteFile(path(), ToJson(*ReportNumber(1)));
  auto exporter = MakeJournalWriter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1, 2));
  EXPECT_EQ(History().unreadable_lines, 0);
}

TEST_F(JournalWriterTest, FailsWithoutARunDirectory) {
  FakeStatusSource nowhere;
  const absl::Status status = MakeJournalWriter()->Start(&nowhere, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("run_dir"));
}

TEST_F(JournalWriterTest, NamesThePathThatCannotBeOpened) {
  FakeStatusSource missing(dir_.File("missing"));
  const absl::Status status = MakeJournalWriter()->Start(&missing, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir_.File("missing/journal.jsonl")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));

  std::filesystem::create_directory(path());
  EXPECT_FALSE(MakeJournalWriter()->Start(&source_, nullptr).ok());
}

TEST_F(JournalWriterTest, RefusesAFileThatIsNotRegular) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  const absl::Status status = MakeJournalWriter()->Start(&source_, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a regular file"));
}

TEST_F(JournalWriterTest, RefusesARunDirectoryInUse) {
  auto first = MakeJournalWriter();
  ASSERT_TRUE(first->Start(&source_, nullptr).ok());
  const absl::Status status = MakeJournalWriter()->Start(&source_, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("another monitor"));
  first->Stop(seconds(20));
  auto second = MakeJournalWriter();
  EXPECT_TRUE(second->Start(&source_, nullptr).ok());
}

TEST_F(JournalWriterTest, StopsTwiceAndIgnoresWhatComesAfter) {
  auto exporter = MakeJournalWriter();
  exporter->Stop(seconds(20));
  exporter->OnReport(ReportNumber(1));
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(seconds(20));
  exporter->Stop(seconds(20));
  exporter->OnReport(ReportNumber(3));
  EXPECT_THAT(Sequences(), ElementsAre(2));
  EXPECT_EQ(exporter->Start(&source_, nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(JournalWriterTest, FlushesWhenDestroyed) {
  auto exporter = MakeJournalWriter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  exporter.reset();
  EXPECT_THAT(Sequences(), ElementsAre(1));
}

TEST_F(JournalWriterTest, LeavesTheSignalMaskOfTheCallerAlone) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  auto exporter = MakeJournalWriter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < NSIG; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
}

}  // namespace journal_writer_test
}  // namespace ptqwatch::internal
