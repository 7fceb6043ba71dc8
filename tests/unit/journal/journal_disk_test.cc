// The journal on disks that are full, slow or interrupted.
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "support/journal_fixture.h"

namespace ptqwatch::internal {
namespace journal_disk_test {

using JournalDiskTest = JournalWriterTest;

// The whole way down to the kernel: a real partial write, by a limit on file sizes. Its signal,
// SIGXFSZ, would end the process had the writing thread not blocked it.
TEST_F(JournalDiskTest, SurvivesAFileSizeLimitAndWritesOnceItIsLifted) {
  struct sigaction action {};
  ASSERT_EQ(sigaction(SIGXFSZ, nullptr, &action), 0);
  ASSERT_EQ(action.sa_handler, SIG_DFL);
  LogCatcher log;
  auto exporter = MakeJournalWriter();
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

// A run that is resumed before the disk has room again.
TEST_F(JournalDiskTest, StartsOnAFullDiskAndEndsATruncatedLineLater) {
  LogCatcher log;
  const std::string whole = ToJson(*ReportNumber(1)) + "\n";
  WriteFile(path(), whole + whole.substr(0, whole.size() / 2));
  SmallDisk disk(0);
  auto exporter = MakeJournalWriter(disk.Write());
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(2));
  EXPECT_THAT(log.WaitForFirst(), HasSubstr("No space left on device"));
  disk.SetRoom(1 << 20);
  exporter->OnReport(ReportNumber(3));
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1, 2, 3));
  EXPECT_EQ(History().unreadable_lines, 1);
}

TEST_F(JournalDiskTest, RetriesAtStopWhatAFullDiskRefused) {
  LogCatcher log;
  SmallDisk disk(50);
  auto exporter = MakeJournalWriter(disk.Write());
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  exporter->OnReport(ReportNumber(1));
  EXPECT_THAT(log.WaitForFirst(), HasSubstr("No space left on device"));
  EXPECT_EQ(std::filesystem::file_size(path()), 0u);
  disk.SetRoom(1 << 20);
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1));
  EXPECT_TRUE(source_.status().dropped_reports.empty());
}

TEST_F(JournalDiskTest, CountsWhatAFullDiskRefusedToTheEnd) {
  LogCatcher log;
  const auto line = static_cast<int64_t>(ToJson(*ReportNumber(1)).size());
  SmallDisk disk(line + 1 + line / 2);
  auto exporter = MakeJournalWriter(disk.Write());
  ASSERT_TRUE(exporter->Start(&source_, nullptr).ok());
  for (int i = 1; i <= 4; ++i) exporter->OnReport(ReportNumber(i));
  exporter->Stop(seconds(20));
  EXPECT_THAT(Sequences(), ElementsAre(1));
  EXPECT_EQ(History().unreadable_lines, 0);
  EXPECT_EQ(source_.drops("journal", "write_failed"), 3);
  // The failure once, not at every try, and the loss at the end.
  ASSERT_EQ(log.messages().size(), 2u);
  EXPECT_THAT(log.messages()[1], HasSubstr("3 lines are missing"));
}

TEST_F(JournalDiskTest, DropsTheOldestWhenTheQueueIsFull) {
  LogCatcher log;
  SmallDisk disk(0);
  auto exporter = MakeJournalWriter(disk.Write());
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

TEST_F(JournalDiskTest, NeverDropsTheReportBeingWritten) {
  struct Disk {
    std::promise<void> writing;
    std::promise<void> go_on;
    bool first = true;
  };
  auto disk = std::make_shared<Disk>();
  auto exporter = MakeJournalWriter([disk](int file, const void* bytes, size_t size) {
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

TEST_F(JournalDiskTest, StopsInTimeWhenTheDiskHangs) {
  LogCatcher log;
  struct Disk {
    std::promise<void> hangs;
    std::promise<void> answers;
    std::promise<void> left;
  };
  auto disk = std::make_shared<Disk>();
  std::future<void> hangs = disk->hangs.get_future();
  std::future<void> left = disk->left.get_future();
  auto exporter = MakeJournalWriter([disk](int, const void*, size_t) -> ssize_t {
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

TEST_F(JournalDiskTest, WritesInPiecesWhenInterrupted) {
  std::atomic<int> calls{0};
  auto exporter = MakeJournalWriter([&](int file, const void* bytes, size_t size) -> ssize_t {
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

}  // namespace journal_disk_test
}  // namespace ptqwatch::internal
