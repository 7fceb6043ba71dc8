// Tests which thread copies the state of the probes, and how the writer's thread behaves.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/zeros.h"
#include "ATen/record_function.h"
#include "monitor/state_keeper.h"
#include "probes/probe_state_file.h"
#include "ptqwatch/log.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace monitor_state_test {

// Counts LibTorch's operators on this thread and on others, which on a GPU would work on the stream
// that a LibTorch trainer computes on.
struct Operators {
  Operators() {
    here = others = 0;
    thread = std::this_thread::get_id();
    handle = at::addGlobalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
          (std::this_thread::get_id() == thread ? here : others) += 1;
          return nullptr;
        }));
  }
  ~Operators() { at::removeCallback(handle); }

  static inline std::atomic<int> here;
  static inline std::atomic<int> others;
  static inline std::thread::id thread;
  at::CallbackHandle handle;
};

struct MonitorStateTest : ::testing::Test {
  MonitorStateTest() { SetLogSink(Severity::kError, nullptr); }
  ~MonitorStateTest() override { SetLogSink(Severity::kWarning, nullptr); }

  std::unique_ptr<StateKeeper> Keeper() {
    return std::make_unique<StateKeeper>(
        StateKeeper::Options{.run_dir = directory.path(),
                             .run_id = "run",
                             .fingerprint = "print",
                             .lock = nullptr,
                             .bytes = std::make_shared<ByteBudget>(),
                             .board = board,
                             .clock = Clock::Real()});
  }
  int64_t failures() const { return board->Read(0, 0).state_write_failures_total; }

  testing::TempDir directory;
  TrainerBoard steps;
  std::shared_ptr<StatusBoard> board = std::make_shared<StatusBoard>(&steps);
  ProbeState state{.sequence = 3, .vectors = {{"top.0", {at::arange(6, at::kFloat)}}}};
  ProbeState on_device{.sequence = 4,
                       .vectors = {{"top.0", {at::zeros({1 << 23}, at::device(at::kMeta))}}}};
};

TEST_F(MonitorStateTest, TheWritersThreadRunsNoOperator) {
  auto keeper = Keeper();
  {
    const Operators operators;
    keeper->Offer(state, /*now=*/true, {});
    keeper->End();
    EXPECT_EQ(Operators::others, 0);
  }
  EXPECT_EQ(failures(), 0);
  const auto file = ProbeStateFile::Open(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  const VectorSpace space({{"w", at::zeros({6})}}, at::kFloat, at::kCPU);
  EXPECT_TRUE(
      at::equal(file->Read(space)->vectors.at("top.0").elements, at::arange(6, at::kFloat)));
}

// A tensor without data stands for one on a GPU: a copy of it fails on the thread that tries.
TEST_F(MonitorStateTest, OfferCopiesFromADeviceOnItsOwnThread) {
  auto keeper = Keeper();
  const Operators operators;
  keeper->Offer(on_device, /*now=*/true, {});
  EXPECT_EQ(failures(), 1);
  EXPECT_GT(Operators::here, 0);
  keeper->End();
  EXPECT_EQ(failures(), 2);
  EXPECT_EQ(Operators::others, 0);
}

TEST_F(MonitorStateTest, CopyingFromADeviceStopsWithTheContext) {
  auto keeper = Keeper();
  ExecutionContext context;
  context.cancel.Cancel();
  keeper->Offer(on_device, /*now=*/true, context);
  EXPECT_EQ(failures(), 0);
}

}  // namespace monitor_state_test
}  // namespace ptqwatch::internal
