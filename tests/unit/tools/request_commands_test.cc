#include <gmock/gmock.h>

#include "captured_terminal.h"
#include "commands.h"
#include "support/fake_clock.h"
#include "unit/proto/client/fake_server.h"

namespace ptqwatch::internal {
namespace request_commands_test {

using std::chrono::milliseconds;
using testing::CapturedTerminal;
using testing::FakeClock;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RequestCommandsTest : public ::testing::Test {
 protected:
  FakeServer server_;
  FakeClock clock_;
  CapturedTerminal captured_;
};

v1::SliceStatus Slice(v1::SliceState state, int32_t points_done = 0) {
  v1::SliceStatus slice;
  slice.set_state(state);
  slice.set_number(4);
  slice.set_method("gptq");
  slice.set_bits(3);
  slice.set_points_done(points_done);
  slice.set_points_all(444);
  if (state == v1::SLICE_STATE_DONE) slice.set_path("runs/a/slice-9.json");
  if (state == v1::SLICE_STATE_FAILED) slice.set_error("disk full");
  return slice;
}

constexpr WatchOptions kQuick = {.tick = milliseconds(1)};

TEST_F(RequestCommandsTest, SliceIsRequested) {
  const SliceFlags flags{.target = server_.address(), .method = "gptq", .bits = 3, .points = 9};
  EXPECT_EQ(RunSlice(flags, &clock_, captured_.get()), 0);
  ASSERT_EQ(server_.commands().size(), 1u);
  const auto slice = std::get<MakeSlice>(server_.commands()[0]);
  EXPECT_EQ(slice.method, QuantizationMethod::kGptq);
  EXPECT_EQ(slice.bits, 3);
  EXPECT_EQ(slice.points, 9);
  EXPECT_THAT(captured_.out(), HasSubstr("ptqwatch status " + server_.target()));
}

TEST_F(RequestCommandsTest, SliceWaitsAndSaysHowFarItIs) {
  server_.AnswerSlicesWith(
      4, {Slice(v1::SLICE_STATE_WAITING_FOR_FIRST), Slice(v1::SLICE_STATE_WAITING_FOR_SECOND),
          Slice(v1::SLICE_STATE_MEASURING, 1), Slice(v1::SLICE_STATE_MEASURING, 99),
          Slice(v1::SLICE_STATE_DONE, 444)});
  const SliceFlags flags{.target = server_.address(), .method = "gptq", .bits = 3, .wait = true};
  // The status is asked for once a tick, and the clock has to get there.
  Clock* const real = Clock::Real();
  EXPECT_EQ(RunSlice(flags, real, captured_.get(), kQuick), 0);
  EXPECT_EQ(captured_.out(),
            "slice gptq3: waiting for the next snapshot\n"
            "slice gptq3: one snapshot taken, waiting for the next\n"
            "slice gptq3: 1 of 444 points measured\n"
            "slice runs/a/slice-9.json\n");
  EXPECT_THAT(captured_.error(), IsEmpty());
}

v1::CooldownStatus Cooldown(v1::CooldownState state, int64_t steps_done = 0) {
  v1::CooldownStatus cooldown;
  cooldown.set_state(state);
  cooldown.set_number(2);
  if (state != v1::COOLDOWN_STATE_WAITING) cooldown.set_step(8000);
  cooldown.set_steps_done(steps_done);
  cooldown.set_steps_all(3000);
  if (state == v1::COOLDOWN_STATE_DONE) cooldown.set_result("gptq3 error would end at 8.8 %");
  if (state == v1::COOLDOWN_STATE_FAILED) cooldown.set_error("no such batch");
  return cooldown;
}

TEST_F(RequestCommandsTest, CooldownIsRequestedAndCancelled) {
  CooldownFlags flags{.target = server_.address(), .decay_steps = 3200};
  EXPECT_EQ(RunCooldown(flags, &clock_, captured_.get()), 0);
  EXPECT_THAT(captured_.out(), HasSubstr("ptqwatch status " + server_.target()));
  flags = {.target = server_.address(), .cancel = true};
  EXPECT_EQ(RunCooldown(flags, &clock_, captured_.get()), 0);
  EXPECT_THAT(captured_.out(), HasSubstr("shadow cooldown cancelled"));
  ASSERT_EQ(server_.commands().size(), 2u);
  EXPECT_EQ(std::get<StartCooldown>(server_.commands()[0]).decay_steps, 3200);
  EXPECT_TRUE(std::holds_alternative<CancelCooldown>(server_.commands()[1]));
  server_.FailCalls(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "train_step is not set"));
  EXPECT_EQ(RunCooldown(flags, &clock_, captured_.get()), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr("train_step is not set"));
}

TEST_F(RequestCommandsTest, CooldownWaitsForThePrediction) {
  server_.AnswerCooldownsWith(
      2, {Cooldown(v1::COOLDOWN_STATE_WAITING), Cooldown(v1::COOLDOWN_STATE_SIMULATING, 450),
          Cooldown(v1::COOLDOWN_STATE_SIMULATING, 900), Cooldown(v1::COOLDOWN_STATE_DONE, 3000)});
  const CooldownFlags flags{.target = server_.address(), .wait = true};
  EXPECT_EQ(RunCooldown(flags, Clock::Real(), captured_.get(), kQuick), 0);
  EXPECT_EQ(captured_.out(),
            "cooldown 2: waiting for the next snapshot\n"
            "cooldown 2 from step 8000: 450 of 3000 steps simulated\n"
            "cooldown 2: gptq3 error would end at 8.8 %\n");
}

TEST_F(RequestCommandsTest, CooldownSaysThatItWaitsForACore) {
  v1::CooldownStatus waits = Cooldown(v1::COOLDOWN_STATE_SIMULATING);
  waits.set_waits_for_core(true);
  server_.AnswerCooldownsWith(2, {waits, Cooldown(v1::COOLDOWN_STATE_DONE, 3000)});
  const CooldownFlags flags{.target = server_.address(), .wait = true};
  EXPECT_EQ(RunCooldown(flags, Clock::Real(), captured_.get(), kQuick), 0);
  EXPECT_THAT(captured_.out(), HasSubstr("0 of 3000 steps simulated, waiting for a spare core\n"));
}

TEST_F(RequestCommandsTest, CooldownFailsWithTheReason) {
  server_.AnswerCooldownsWith(2, {Cooldown(v1::COOLDOWN_STATE_FAILED)});
  const CooldownFlags flags{.target = server_.address(), .wait = true};
  EXPECT_EQ(RunCooldown(flags, Clock::Real(), captured_.get(), kQuick), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr("cooldown 2 from step 8000: failed: no such batch"));
}

TEST_F(RequestCommandsTest, SliceFailsWithTheReason) {
  server_.AnswerSlicesWith(
      4, {Slice(v1::SLICE_STATE_WAITING_FOR_FIRST), Slice(v1::SLICE_STATE_FAILED)});
  const SliceFlags flags{.target = server_.address(), .method = "gptq", .bits = 3, .wait = true};
  EXPECT_EQ(RunSlice(flags, Clock::Real(), captured_.get(), kQuick), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr("slice gptq3: failed: disk full"));
}

TEST_F(RequestCommandsTest, SliceFailsWithTheServersRefusal) {
  server_.FailCalls(
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "method = 'awq': this run has rtn 4"));
  const SliceFlags flags{.target = server_.address(), .method = "awq", .bits = 3, .wait = true};
  EXPECT_EQ(RunSlice(flags, &clock_, captured_.get()), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr(server_.target() + " refuses: method = 'awq'"));
}

TEST_F(RequestCommandsTest, SliceIsWaitedForWhileTheStatusIsOlderThanTheRequest) {
  v1::SliceStatus before = Slice(v1::SLICE_STATE_DONE);
  before.set_number(3);
  server_.AnswerSlicesWith(4, {before, Slice(v1::SLICE_STATE_DONE)});
  const SliceFlags flags{.target = server_.address(), .method = "gptq", .bits = 3, .wait = true};
  EXPECT_EQ(RunSlice(flags, Clock::Real(), captured_.get(), kQuick), 0);
  EXPECT_EQ(captured_.out(), "slice runs/a/slice-9.json\n");
}

TEST_F(RequestCommandsTest, SliceOfARunThatEndsOrRestartsFails) {
  const SliceFlags flags{.target = server_.address(), .method = "gptq", .bits = 3, .wait = true};
  server_.AnswerSlicesWith(5, {Slice(v1::SLICE_STATE_DONE)});  // number 4
  EXPECT_EQ(RunSlice(flags, Clock::Real(), captured_.get(), kQuick), kExitFailed);
  EXPECT_THAT(captured_.error(), HasSubstr("no slice from " + server_.target()));

  CapturedTerminal ended;
  server_.AnswerSlicesWith(4, {Slice(v1::SLICE_STATE_WAITING_FOR_SECOND)});
  server_.EndStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped"));
  EXPECT_EQ(RunSlice(flags, Clock::Real(), ended.get(), kQuick), kExitFailed);
  EXPECT_THAT(ended.error(), HasSubstr("gptq3: one snapshot taken"));
}

}  // namespace request_commands_test
}  // namespace ptqwatch::internal
