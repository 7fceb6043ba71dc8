#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "journal/journal_files.h"
#include "journal/journal_tail.h"
#include "journal/journal_writer.h"
#include "journal/report_line.h"
#include "support/journal_fixture.h"

namespace ptqwatch::internal {
namespace journal_parts_test {

class JournalPartsTest : public JournalWriterTest {
 protected:
  // A part for every `reports` of the sample reports.
  std::unique_ptr<Exporter> Start(int64_t reports, int older_parts) {
    const auto line = static_cast<int64_t>(ReportLine(*ReportNumber(1)).size());
    auto writer =
        MakeJournalWriter(::write, {.part_bytes = reports * line, .older_parts = older_parts});
    EXPECT_TRUE(writer->Start(&source_, nullptr).ok());
    return writer;
  }
  static void Write(Exporter& writer, int64_t first, int64_t last) {
    for (int64_t sequence = first; sequence <= last; ++sequence) {
      writer.OnReport(ReportNumber(sequence));
    }
    writer.Stop(seconds(20));
  }
  std::vector<std::string> Parts() {
    std::vector<std::string> names;
    const auto paths = JournalPaths(dir_.path());
    EXPECT_TRUE(paths.ok()) << paths.status();
    if (!paths.ok()) return names;
    for (const std::string& path : *paths) {
      if (std::filesystem::exists(path)) {
        names.push_back(std::filesystem::path(path).filename().string());
      }
    }
    return names;
  }
};

TEST_F(JournalPartsTest, BeginsAPartWhenOneHasItsSize) {
  auto writer = Start(/*reports=*/2, /*older_parts=*/10);
  Write(*writer, 1, 5);
  EXPECT_THAT(Parts(),
              ElementsAre("journal-000001.jsonl", "journal-000002.jsonl", "journal.jsonl"));
  EXPECT_THAT(Sequences(), ElementsAre(1, 2, 3, 4, 5));
  // The next attempt goes on in the newest part.
  Write(*Start(2, 10), 6, 7);
  EXPECT_THAT(Parts(), ElementsAre("journal-000001.jsonl", "journal-000002.jsonl",
                                   "journal-000003.jsonl", "journal.jsonl"));
  EXPECT_THAT(Sequences(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST_F(JournalPartsTest, RemovesTheOldestParts) {
  Write(*Start(/*reports=*/1, /*older_parts=*/2), 1, 6);
  EXPECT_THAT(Parts(),
              ElementsAre("journal-000005.jsonl", "journal-000006.jsonl", "journal.jsonl"));
  EXPECT_THAT(Sequences(), ElementsAre(5, 6));
}

// Listing them may fail for want of descriptors.
TEST_F(JournalPartsTest, NeverReplacesAPart) {
  Write(*Start(/*reports=*/1, /*older_parts=*/10), 1, 2);
  auto file = JournalFile::Open(path(), ::write);
  ASSERT_TRUE(file.ok()) << file.status();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const auto part = (*file)->BeginPart(dir_.path(), 10, ::write);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_FALSE(part.ok());
  file->reset();
  EXPECT_THAT(Sequences(), ElementsAre(1, 2));
}

TEST(JournalFiles, KnowsItsOwnNames) {
  EXPECT_EQ(OlderPartNumber(OlderPartName(1)), 1);
  EXPECT_EQ(OlderPartNumber("journal-1234567.jsonl"), 1234567);
  for (const char* name :
       {"journal.jsonl", "journal-.jsonl", "journal-1.jsonl", "journal--00001.jsonl",
        "journal-000001.jsonl.tmp", "journal-+00001.jsonl"}) {
    EXPECT_EQ(OlderPartNumber(name), 0) << name;
  }
}

// By chunks, or a line at a time.
class JournalTailTest : public JournalPartsTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::vector<int64_t> ReadAll() {
    std::vector<int64_t> before;
    std::swap(before, sequences_);
    while (true) {
      const absl::StatusOr<bool> more = GetParam() ? tail_.ReadLine() : tail_.Read();
      EXPECT_TRUE(more.ok()) << more.status();
      if (!more.ok() || !*more) return sequences_;
    }
  }
  void Append(const std::string& bytes) {
    WriteFile(path(), (std::filesystem::exists(path()) ? ReadFile(path()) : "") + bytes);
  }

  std::vector<int64_t> sequences_;
  int unreadable_ = 0;
  JournalTail tail_{
      dir_.path(),
      {.report = [this](AnalyzedReport r) { sequences_.push_back(r.report.sequence); },
       .event = nullptr,
       .unreadable = [this] { ++unreadable_; }}};
};

TEST_P(JournalTailTest, ReadsWhatIsThereAndWhatComes) {
  EXPECT_THAT(ReadAll(), ElementsAre());  // no journal yet
  const std::string first = ReportLine(*ReportNumber(1)) + "\n";
  const std::string second = ReportLine(*ReportNumber(2)) + "\n";
  Append(first);
  EXPECT_THAT(ReadAll(), ElementsAre(1));
  EXPECT_THAT(ReadAll(), ElementsAre());
  // Half a line is none yet.
  Append(second.substr(0, 50));
  EXPECT_THAT(ReadAll(), ElementsAre());
  Append(second.substr(50));
  EXPECT_THAT(ReadAll(), ElementsAre(2));
  Append("damage\n");
  EXPECT_THAT(ReadAll(), ElementsAre());
  EXPECT_EQ(unreadable_, 1);
}

TEST_P(JournalTailTest, FollowsAcrossParts) {
  auto writer = Start(/*reports=*/2, /*older_parts=*/10);
  Write(*writer, 1, 3);
  EXPECT_THAT(ReadAll(), ElementsAre(1, 2, 3));
  Write(*Start(2, 10), 4, 9);
  EXPECT_THAT(ReadAll(), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(ReadAll(), ElementsAre());
}

// The writer appended them between the reader's last look at a part and the next part's beginning.
TEST_P(JournalTailTest, ReadsTheLastLinesOfAPart) {
  Append(ReportLine(*ReportNumber(1)) + "\n");
  EXPECT_THAT(ReadAll(), ElementsAre(1));
  Append(ReportLine(*ReportNumber(2)) + "\n");
  std::filesystem::rename(path(), dir_.File(OlderPartName(1)));
  Append(ReportLine(*ReportNumber(3)) + "\n");
  EXPECT_THAT(ReadAll(), ElementsAre(2, 3));
}

TEST_P(JournalTailTest, GetsPastALongLineOfDamage) {
  Append(std::string(10 << 20, 'x') + "\n" + ReportLine(*ReportNumber(1)) + "\n");
  EXPECT_THAT(ReadAll(), ElementsAre(1));
  EXPECT_EQ(unreadable_, 1);
}

TEST_P(JournalTailTest, GoesOnAfterPartsThatAreGone) {
  Write(*Start(/*reports=*/1, /*older_parts=*/10), 1, 2);
  EXPECT_THAT(ReadAll(), ElementsAre(1, 2));
  Write(*Start(/*reports=*/1, /*older_parts=*/1), 3, 6);
  const std::vector<int64_t> rest = ReadAll();
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest.back(), 6);
}

TEST_P(JournalTailTest, ReadsAJournalThatReplacesIt) {
  Append(ReportLine(*ReportNumber(1)) + "\n" + ReportLine(*ReportNumber(2)) + "\n");
  EXPECT_THAT(ReadAll(), ElementsAre(1, 2));
  std::filesystem::remove(path());
  EXPECT_THAT(ReadAll(), ElementsAre());
  Append(ReportLine(*ReportNumber(3)) + "\n");
  EXPECT_THAT(ReadAll(), ElementsAre(3));
}

TEST_P(JournalTailTest, ReadsLinesLongerThanAChunk) {
  AnalyzedReport large = *ReportNumber(5);
  large.report.probe_status_detail = std::string(3 << 20, 'x');
  Append(ReportLine(large) + "\n" + ReportLine(*ReportNumber(6)) + "\n");
  EXPECT_THAT(ReadAll(), ElementsAre(5, 6));
}

TEST_P(JournalTailTest, AReaderOfManyJournalsTakesOneLine) {
  if (!GetParam()) return;
  Append(ReportLine(*ReportNumber(1)) + "\n" + ReportLine(*ReportNumber(2)) + "\n");
  EXPECT_EQ(tail_.ReadLine().value(), true);
  EXPECT_THAT(sequences_, ElementsAre(1));
}

INSTANTIATE_TEST_SUITE_P(Reads, JournalTailTest, ::testing::Bool());

}  // namespace journal_parts_test
}  // namespace ptqwatch::internal
