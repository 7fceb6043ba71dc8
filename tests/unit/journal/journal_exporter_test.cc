#include "journal/journal_exporter.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "journal/journal_exporter_internal.h"
#include "journal/run_directory.h"
#include "ptqwatch/log.h"
#include "support/fake_status_source.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::FakeStatusSource;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::SampleReport;
using testing::TempDir;
using testing::WriteFile;

std::shared_ptr<const AnalyzedReport> ReportNumber(int64_t sequence) {
  AnalyzedReport report = SampleReport();
  report.report.sequence = sequence;
  return std::make_shared<const AnalyzedReport>(std::move(report));
}

// Collects what the library logs for as long as it lives.
class LogCatcher {
 public:
  LogCatcher() : state_(std::make_shared<State>()) {
    SetLogSink(Severity::kWarning, [state = state_](Severity, std::string_view message) {
      std::lock_guard<std::mutex> lock(state->mutex);
      state->messages.emplace_back(message);
      state->changed.notify_all();
    });
  }
  ~LogCatcher() { SetLogSink(Severity::kWarning, {}); }

  std::string WaitForFirst() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    const bool came =
        state_->changed.wait_for(lock, seconds(20), [&] { return !state_->messages.empty(); });
    return came ? state_->messages.front() : "no message came";
  }
  std::vector<std::string> messages() const {
    std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->messages;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> messages;
  };
  std::shared_ptr<State> state_;
};

class JournalExporterTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.File(kJournalFileName); }

  RunHistory History() {
    absl::StatusOr<RunHistory> history = OpenRunDirectory(dir_.path());
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : RunHistory{};
  }
  std::vector<int64_t> Sequences() {
    std::vector<int64_t> sequences;
    for (const AnalyzedReport& report : History().reports) {
      sequences.push_back(report.report.sequence);
    }
    return sequences;
  }

  TempDir dir_;
  FakeStatusSource source_{dir_.path()};
};

TEST_F(JournalExporterTest, WritesOneLineAReport) {
  auto exporter = ptqwatch::MakeJournalExporter();
  EXPECT_EQ(exporter->name(), "journal");
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  for (int i = 1; i <= 50; ++i) exporter->OnReport(ReportNumber(i));
  exporter->Stop(seconds(20));
  const RunHistory history = History();
  ASSERT_EQ(history.reports.size(), 50u);
  EXPECT_EQ(history.reports[49], *ReportNumber(50));
  EXPECT_EQ(history.unreadable_lines, 0);
  EXPECT_EQ(ReadFile(path()).back(), '\n');
  EXPECT_TRUE(source_.status().dropped_reports.empty());
}

TEST_F(JournalExporterTest, WritesWithoutWaitingForStop) {
  std::promise<void> written;
  auto exporter = MakeJournalExporter([&](int file, const void* bytes, size_t size) {
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

TEST_F(JournalExporterTest, AppendsOnResume) {
  for (int attempt = 1; attempt <= 3; ++attempt) {
    auto exporter = ptqwatch::MakeJournalExporter();
    ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
    exporter->OnReport(ReportNumber(attempt));
    exporter->Stop(seconds(20));
  }
  EXPECT_THAT(Sequences(), ElementsAre(1, 2, 3));
}

TEST_F(JournalExporterTest, EndsALineThatACrashCutOff) {
  const std::string line = ToJson(*ReportNumber(1));
  const std::string nuls(4096, '\0');
  for (const std::string& tail : {line.substr(0, line.size() / 2), nuls}) {
    WriteFile(path(), line + "\n" + tail);
    auto exporter = ptqwatch::MakeJournalExporter();
    ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
    EXPECT_EQ(ReadFile(path()), line + "\n" + tail + "\n");
    exporter->OnReport(ReportNumber(2));
    exporter->Stop(seconds(20));
    EXPECT_THAT(Sequences(), ElementsAre(1, 2));
    EXPECT_EQ(History().unreadable_lines, 1);
  }
}

TEST_F(JournalExporterTest, KeepsAWholeLastLineThatLacksItsNewline) {
  WriteFile(path(), ToJson(*ReportNumber(1)));
  auto exporter = ptqwatch::MakeJournalExporter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1, 2));
  EXPECT_EQ(History().unreadable_lines, 0);
}

TEST_F(JournalExporterTest, FailsWithoutARunDirectory) {
  FakeStatusSource nowhere;
  const absl::Status status = ptqwatch::MakeJournalExporter()->Start(&nowhere, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("run_dir"));
}

TEST_F(JournalExporterTest, NamesThePathThatCannotBeOpened) {
  FakeStatusSource missing(dir_.File("missing"));
  const absl::Status status = ptqwatch::MakeJournalExporter()->Start(&missing, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir_.File("missing/journal.jsonl")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));

  std::filesystem::create_directory(path());
  EXPECT_FALSE(ptqwatch::MakeJournalExporter()->Start(&source_, nullptr).ok());
}

TEST_F(JournalExporterTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  const absl::Status status = ptqwatch::MakeJournalExporter()->Start(&source_, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a regular file"));
}

TEST_F(JournalExporterTest, RefusesARunDirectoryInUse) {
  auto first = ptqwatch::MakeJournalExporter();
  ASSERT_TRUE(first->Start(&source_, nullptr).ok());
  const absl::Status status = ptqwatch::MakeJournalExporter()->Start(&source_, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("another monitor"));
  first->Stop(seconds(20));
  auto second = ptqwatch::MakeJournalExporter();
  EXPECT_TRUE(second->Start(&source_, nullptr).ok());
}

TEST_F(JournalExporterTest, StopsTwiceAndIgnoresWhatComesAfter) {
  auto exporter = ptqwatch::MakeJournalExporter();
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

TEST_F(JournalExporterTest, FlushesWhenDestroyed) {
  auto exporter = ptqwatch::MakeJournalExporter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  exporter.reset();
  EXPECT_THAT(Sequences(), ElementsAre(1));
}

// The whole way down to the kernel: a real partial write, by a limit on file sizes. Its signal,
// SIGXFSZ, would end the process had the writing thread not blocked it.
TEST_F(JournalExporterTest, SurvivesAFileSizeLimitAndWritesOnceItIsLifted) {
  struct sigaction action {};
  ASSERT_EQ(sigaction(SIGXFSZ, nullptr, &action), 0);
  ASSERT_EQ(action.sa_handler, SIG_DFL);
  LogCatcher log;
  auto exporter = ptqwatch::MakeJournalExporter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  exporter->OnReport(ReportNumber(1));
  const std::string message = log.WaitForFirst();
  const uintmax_t size = std::filesystem::file_size(path());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);

  EXPECT_THAT(message, HasSubstr("cannot write journal '" + path() + "': File too large"));
  EXPECT_EQ(size, 0u) << "the part that was written must be cut off";
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1, 2));
  EXPECT_EQ(History().unreadable_lines, 0);
  EXPECT_TRUE(source_.status().dropped_reports.empty());
}

// A disk that takes `room` more bytes.
class SmallDisk {
 public:
  explicit SmallDisk(int64_t room) : room_(std::make_shared<std::atomic<int64_t>>(room)) {}
  void SetRoom(int64_t room) { *room_ = room; }
  WriteFunction Write() const {
    return [room = room_](int file, const void* bytes, size_t size) -> ssize_t {
      const int64_t fits = std::min(static_cast<int64_t>(size), room->load());
      if (fits <= 0) {
        errno = ENOSPC;
        return -1;
      }
      *room -= fits;
      return ::write(file, bytes, static_cast<size_t>(fits));
    };
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> room_;
};

TEST_F(JournalExporterTest, RetriesAtStopWhatAFullDiskRefused) {
  LogCatcher log;
  SmallDisk disk(50);
  auto exporter = MakeJournalExporter(disk.Write());
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  EXPECT_THAT(log.WaitForFirst(), HasSubstr("No space left on device"));
  EXPECT_EQ(std::filesystem::file_size(path()), 0u);
  disk.SetRoom(1 << 20);
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1));
  EXPECT_TRUE(source_.status().dropped_reports.empty());
}

TEST_F(JournalExporterTest, CountsWhatAFullDiskRefusedToTheEnd) {
  LogCatcher log;
  const auto line = static_cast<int64_t>(ToJson(*ReportNumber(1)).size());
  SmallDisk disk(line + 1 + line / 2);
  auto exporter = MakeJournalExporter(disk.Write());
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  for (int i = 1; i <= 4; ++i) exporter->OnReport(ReportNumber(i));
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1));
  EXPECT_EQ(History().unreadable_lines, 0);
  EXPECT_EQ(source_.drops("journal", "write_failed"), 3);
  // The failure once, not at every try, and the loss at the end.
  ASSERT_EQ(log.messages().size(), 2u);
  EXPECT_THAT(log.messages()[1], HasSubstr("3 reports are missing"));
}

TEST_F(JournalExporterTest, DropsTheOldestWhenTheQueueIsFull) {
  LogCatcher log;
  SmallDisk disk(0);
  auto exporter = MakeJournalExporter(disk.Write());
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  const auto extra = 44;
  for (int i = 1; i <= static_cast<int>(kJournalQueue) + extra; ++i) {
    exporter->OnReport(ReportNumber(i));
  }
  EXPECT_EQ(source_.drops("journal", "queue_full"), extra);
  disk.SetRoom(int64_t{1} << 30);
  exporter->Stop(seconds(20));
  const std::vector<int64_t> sequences = Sequences();
  ASSERT_EQ(sequences.size(), kJournalQueue);
  // The first may be one that was being tried when it would have been its turn to go.
  EXPECT_LE(sequences[0], extra + 1);
  EXPECT_EQ(sequences[1], extra + 2);
  EXPECT_EQ(sequences.back(), static_cast<int64_t>(kJournalQueue) + extra);
  EXPECT_EQ(source_.drops("journal", "write_failed"), 0);
}

TEST_F(JournalExporterTest, NeverDropsTheReportBeingWritten) {
  struct Disk {
    std::promise<void> writing;
    std::promise<void> go_on;
    bool first = true;
  };
  auto disk = std::make_shared<Disk>();
  auto exporter = MakeJournalExporter([disk](int file, const void* bytes, size_t size) {
    if (std::exchange(disk->first, false)) {
      disk->writing.set_value();
      disk->go_on.get_future().wait();
    }
    return ::write(file, bytes, size);
  });
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  disk->writing.get_future().wait();
  for (int i = 2; i <= static_cast<int>(kJournalQueue) + 3; ++i) {
    exporter->OnReport(ReportNumber(i));
  }
  disk->go_on.set_value();
  exporter->Stop(seconds(20));
  const std::vector<int64_t> sequences = Sequences();
  EXPECT_EQ(source_.drops("journal", "queue_full"), 3);
  ASSERT_EQ(sequences.size(), kJournalQueue);
  EXPECT_EQ(sequences[0], 1);
  EXPECT_EQ(sequences[1], 5);
}

TEST_F(JournalExporterTest, StopsInTimeWhenTheDiskHangs) {
  LogCatcher log;
  struct Disk {
    std::promise<void> hangs;
    std::promise<void> answers;
    std::promise<void> left;
  };
  auto disk = std::make_shared<Disk>();
  std::future<void> hangs = disk->hangs.get_future();
  std::future<void> left = disk->left.get_future();
  auto exporter = MakeJournalExporter([disk](int, const void*, size_t) -> ssize_t {
    disk->hangs.set_value();
    disk->answers.get_future().wait();
    disk->left.set_value_at_thread_exit();
    errno = EIO;
    return -1;
  });
  auto source = std::make_unique<FakeStatusSource>(dir_.path());
  ASSERT_TRUE(exporter->Start(source.get(), nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  hangs.wait();
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(std::chrono::milliseconds(20));
  EXPECT_EQ(source->drops("journal", "write_failed"), 2);
  EXPECT_THAT(log.WaitForFirst(), HasSubstr("did not answer in time"));
  // The thread comes back to a world without exporter and source.
  exporter.reset();
  source.reset();
  disk->answers.set_value();
  left.wait();
}

TEST_F(JournalExporterTest, WritesInPiecesWhenInterrupted) {
  std::atomic<int> calls{0};
  auto exporter = MakeJournalExporter([&](int file, const void* bytes, size_t size) -> ssize_t {
    if (calls++ % 2 == 0) {
      errno = EINTR;
      return -1;
    }
    return ::write(file, bytes, std::min<size_t>(size, 100));
  });
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  exporter->OnReport(ReportNumber(2));
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1, 2));
  EXPECT_EQ(History().unreadable_lines, 0);
}

TEST_F(JournalExporterTest, LeavesTheSignalMaskOfTheCallerAlone) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  auto exporter = ptqwatch::MakeJournalExporter();
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < NSIG; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
}

}  // namespace
}  // namespace ptqwatch::internal
