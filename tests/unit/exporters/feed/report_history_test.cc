#include "feed/report_history.h"

#include <stdlib.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace report_history_test {

using testing::TempDir;

// A form of 100 bytes, and a short one of 50 bytes.
std::string Full(int64_t sequence) {
  return std::to_string(sequence) + std::string(100 - std::to_string(sequence).size(), 'f');
}
std::string Short(int64_t sequence) { return Full(sequence).substr(0, 50); }

void Append(ReportHistory& history, int64_t first, int64_t last) {
  for (int64_t sequence = first; sequence <= last; ++sequence) {
    history.Append(
        {.sequence = sequence, .forms = {Share(Full(sequence)), Share(Short(sequence))}});
  }
}

void ExpectReports(const ReportHistory& history, int64_t first, int64_t last) {
  EXPECT_EQ(history.oldest(), first);
  EXPECT_EQ(history.newest(), last);
  int64_t expected = first;
  for (int64_t next = history.After(0); next != 0; next = history.After(next), ++expected) {
    EXPECT_EQ(next, expected);
    EXPECT_EQ(*history.Bytes(next, 0), Full(next));
    EXPECT_EQ(*history.Bytes(next, 1), Short(next));
  }
  EXPECT_EQ(expected, last + 1);
}

TEST(ReportHistory, KeepsANumberOfReports) {
  ReportHistory history({.reports = 5});
  EXPECT_EQ(history.After(0), 0);
  Append(history, 1, 12);
  ExpectReports(history, 8, 12);
  EXPECT_EQ(history.After(12), 0);
}

TEST(ReportHistory, KeepsANumberOfBytes) {
  ReportHistory history({.reports = 100, .bytes = 450});
  Append(history, 1, 12);
  ExpectReports(history, 10, 12);
}

TEST(ReportHistory, PutsOlderReportsIntoAFile) {
  ReportHistory history({.reports = 1000, .bytes = 1'000'000, .memory_bytes = 450});
  Append(history, 1, 500);
  ExpectReports(history, 1, 500);
}

TEST(ReportHistory, ForgetsTheOldestOfTheFile) {
  ReportHistory history({.reports = 20, .bytes = 1'000'000, .memory_bytes = 450});
  Append(history, 1, 500);
  ExpectReports(history, 481, 500);
}

TEST(ReportHistory, KeepsTheNewestInMemoryHoweverLargeItIs) {
  ReportHistory history({.reports = 10, .bytes = 1'000'000, .memory_bytes = 1});
  Append(history, 1, 3);
  ExpectReports(history, 1, 3);
}

TEST(ReportHistory, LosesWhatItCannotWrite) {
  const char* before = getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", "/proc/no/such/folder", 1);
  ReportHistory history({.reports = 10, .bytes = 1'000'000, .memory_bytes = 200});
  Append(history, 1, 3);
  EXPECT_EQ(history.Bytes(1, 0), nullptr);
  EXPECT_EQ(*history.Bytes(3, 0), Full(3));
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", kept.c_str(), 1);
  }
}

}  // namespace report_history_test
}  // namespace ptqwatch::internal
