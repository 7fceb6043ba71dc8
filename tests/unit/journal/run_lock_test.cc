#include "journal/run_lock.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace run_lock_test {

using ::testing::HasSubstr;
using testing::TempDir;

TEST(RunLock, CreatesMissingDirectoriesTheLastForItsOwnerOnly) {
  const TempDir folder;
  const std::string path = folder.path() + "/a/b";
  ASSERT_TRUE(RunLock::Take(path).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_TRUE(RunLock::Take(path + "/").ok()) << "once more, and with a slash";
}

TEST(RunLock, IsHeldByOneAtATime) {
  const TempDir folder;
  auto first = RunLock::Take(folder.path());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(RunLock::IsHeld(folder.path()));
  const auto second = RunLock::Take(folder.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("'" + folder.path() + "'"));
  first->reset();
  EXPECT_FALSE(RunLock::IsHeld(folder.path()));
  EXPECT_TRUE(RunLock::Take(folder.path()).ok());
}

TEST(RunLock, NamesADirectoryThatItCannotLock) {
  const TempDir folder;
  std::filesystem::create_symlink("elsewhere", folder.path() + "/lock");
  const auto lock = RunLock::Take(folder.path());
  EXPECT_THAT(std::string(lock.status().message()),
              HasSubstr("run_dir '" + folder.path() + "': cannot open its lock file"));
}

TEST(RunLock, IsNotKeptByAChildOfAProcessThatEnded) {
  const TempDir folder;
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  int started[2];
  ASSERT_EQ(pipe(started), 0);
  const pid_t trainer = fork();
  if (trainer == 0) {
    const auto lock = RunLock::Take(folder.path());
    if (!lock.ok()) _exit(1);
    char byte = 0;
    if (fork() == 0) {  // outlives its parent, until the test ends
      close(hold[1]);
      if (write(started[1], &byte, 1) != 1) _exit(1);
      _exit(static_cast<int>(read(hold[0], &byte, 1)));
    }
    // The child gives the lock up as its first act, which may come after its parent's last.
    _exit(read(started[0], &byte, 1) == 1 ? 0 : 1);
  }
  int ended = 0;
  ASSERT_EQ(waitpid(trainer, &ended, 0), trainer);
  ASSERT_EQ(ended, 0);
  const auto next = RunLock::Take(folder.path());
  EXPECT_TRUE(next.ok()) << next.status();
  for (const int file : {hold[0], hold[1], started[0], started[1]}) close(file);
}

TEST(RunLock, IsNotGivenUpByAChild) {
  const TempDir folder;
  auto lock = RunLock::Take(folder.path());
  ASSERT_TRUE(lock.ok()) << lock.status();
  const pid_t child = fork();
  if (child == 0) {
    lock->reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(RunLock::Take(folder.path()).ok());
}

TEST(RunLock, RemovesWhatACrashLeftHalfWritten) {
  const TempDir folder;
  for (const char* name : {".state.safetensors.12-0.tmp", "journal.jsonl", ".mine", "notes.tmp"}) {
    std::ofstream(folder.path() + "/" + name) << "x";
  }
  ASSERT_TRUE(RunLock::Take(folder.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/.state.safetensors.12-0.tmp"));
  for (const char* name : {"journal.jsonl", ".mine", "notes.tmp"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/" + name)) << name;
  }
}

TEST(RunLock, NamesThePathThatCannotBeUsed) {
  const TempDir folder;
  std::ofstream(folder.path() + "/file") << "x";
  for (const std::string& path :
       {folder.path() + "/file", folder.path() + "/file/below", std::string("/proc/no/such")}) {
    const auto lock = RunLock::Take(path);
    EXPECT_THAT(std::string(lock.status().message()), HasSubstr("run_dir '" + path + "'"));
  }
}

TEST(RunLock, FollowsNoLink) {
  const TempDir folder;
  const TempDir other;
  std::filesystem::create_symlink(other.path() + "/target", folder.path() + "/lock");
  EXPECT_FALSE(RunLock::Take(folder.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(other.path() + "/target"));
}

}  // namespace run_lock_test
}  // namespace ptqwatch::internal
