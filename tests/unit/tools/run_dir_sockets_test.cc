// The commands open no socket for a run directory but its control.sock.

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "captured_terminal.h"
#include "commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "journal/journal_files.h"
#include "journal/run_endpoint.h"
#include "support/fake_status_source.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal::run_dir_sockets_test {
std::mutex opened_mutex;
std::vector<int> opened;  // the families of the sockets that this process opened
}  // namespace ptqwatch::internal::run_dir_sockets_test

// In place of the C library's, for our code and for gRPC's.
extern "C" __attribute__((visibility("default"))) int socket(int family, int type,
                                                             int protocol) noexcept {
  {
    const std::lock_guard lock(ptqwatch::internal::run_dir_sockets_test::opened_mutex);
    ptqwatch::internal::run_dir_sockets_test::opened.push_back(family);
  }
  return static_cast<int>(syscall(SYS_socket, family, type, protocol));
}

namespace ptqwatch::internal {
namespace run_dir_sockets_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

class TakingControl final : public Control {
 public:
  absl::StatusOr<int64_t> Do(const Command& command) override {
    commands.push_back(command);
    return 12;
  }
  std::vector<Command> commands;
};

std::vector<int> Opened() {
  const std::lock_guard lock(opened_mutex);
  return std::exchange(opened, {});
}

TEST(RunDirSockets, NoneIsOpenedButControlSock) {
  const TempDir dir;
  testing::FakeStatusSource source(dir.path());
  testing::WriteFile(dir.File(kJournalFileName), ToJson(testing::SampleReport()) + "\n");
  TakingControl control;
  auto endpoint = MakeRunEndpoint(*RunLock::Take(dir.path()));
  ASSERT_TRUE(endpoint->Start(&source, &control).ok());
  Target target;
  target.run_dir = dir.path();
  Opened();

  testing::CapturedTerminal terminal;
  EXPECT_EQ(RunSnapshot({.target = target}, Clock::Real(), terminal.get()), 0);
  EXPECT_THAT(terminal.out(), HasSubstr("its report comes after sequence 12\n"));
  ASSERT_EQ(control.commands.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<TakeSnapshot>(control.commands[0]));
  EXPECT_THAT(Opened(), ElementsAre(AF_UNIX));

  EXPECT_EQ(RunStatusCommand({.target = target}, Clock::Real(), terminal.get()), 0);
  EXPECT_THAT(terminal.out(), HasSubstr("report     12 of step 16000"));
  EXPECT_EQ(RunWatch({.target = target, .count = 1}, Clock::Real(), terminal.get()), 0);
  EXPECT_THAT(Opened(), IsEmpty());
}

}  // namespace run_dir_sockets_test
}  // namespace ptqwatch::internal
