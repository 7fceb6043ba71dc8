#include "publish/limited_control.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "publish/control_queue.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace limited_control_test {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

class LimitedControlTest : public ::testing::Test {
 protected:
  // Number of requests accepted out of a hundred.
  template <typename Request>
  static int Taken(Request request) {
    int taken = 0;
    for (int i = 0; i < 100; ++i) taken += request().ok() ? 1 : 0;
    return taken;
  }

  testing::FakeClock clock_;
  Page page_{/*every=*/1, /*stretch=*/0};
  StatusBoard board_{&page_.board};
  JobTrackers jobs_;
  ControlQueue queue_{&jobs_, &board_, &page_};
  LimitedControl control_{&queue_, &clock_};
};

TEST_F(LimitedControlTest, TakesAFewSnapshotsAndThenOneAMinute) {
  EXPECT_EQ(Taken([&] { return control_.Do(TakeSnapshot{}); }), 5);
  const absl::Status refused = control_.Do(TakeSnapshot{}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("60 s"));
  clock_.Advance(seconds(59));
  EXPECT_FALSE(control_.Do(TakeSnapshot{}).ok());
  clock_.Advance(seconds(1));
  EXPECT_EQ(Taken([&] { return control_.Do(TakeSnapshot{}); }), 1);
  clock_.Advance(minutes(1000));
  EXPECT_EQ(Taken([&] { return control_.Do(TakeSnapshot{}); }), 5);
}

TEST_F(LimitedControlTest, LimitsTheOtherCommandsTogether) {
  int calls = 0;
  EXPECT_EQ(Taken([&] { return ++calls % 2 == 0 ? control_.Do(Pause{}) : control_.Do(Resume{}); }),
            20);
  EXPECT_FALSE(control_.Do(SetEvery{5}).ok());
  clock_.Advance(seconds(3));
  EXPECT_EQ(Taken([&] { return control_.Do(SetEvery{5}); }), 3);
}

TEST_F(LimitedControlTest, CountsOnlyWhatIsCarriedOut) {
  jobs_.slice.Open([](const MakeSlice& slice) -> absl::StatusOr<SliceStatus> {
    if (slice.bits != 3) return absl::InvalidArgumentError("bits");
    return SliceStatus{.state = SliceState::kWaitingForFirst, .request = slice};
  });
  const auto request = [&](int bits) {
    return control_.Do(MakeSlice{.method = QuantizationMethod::kGptq, .bits = bits});
  };
  EXPECT_EQ(Taken([&] { return request(7); }), 0);
  EXPECT_EQ(request(7).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Taken([&] { return control_.Do(SetEvery{0}); }), 0);
  // Only one slice may be under way at a time.
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(request(3).ok()) << i;
    EXPECT_FALSE(request(3).ok()) << i;
    jobs_.slice.Fail("done with");
  }
  EXPECT_EQ(request(3).status().code(), absl::StatusCode::kResourceExhausted);
  clock_.Advance(minutes(10));
  EXPECT_TRUE(request(3).ok());
}

TEST_F(LimitedControlTest, TakesAFewCooldownsAndThenOneInTenMinutes) {
  jobs_.cooldown.Open([](const StartCooldown&) -> absl::StatusOr<CooldownStatus> {
    return CooldownStatus{.state = CooldownState::kWaiting};
  });
  const auto request = [&] { return control_.Do(StartCooldown{}); };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(request().ok()) << i;
    EXPECT_TRUE(control_.Do(CancelCooldown{}).ok()) << i;
  }
  EXPECT_EQ(request().status().code(), absl::StatusCode::kResourceExhausted);
  clock_.Advance(minutes(10));
  EXPECT_TRUE(request().ok());
}

TEST_F(LimitedControlTest, AClockThatGoesBackGivesNothing) {
  EXPECT_EQ(Taken([&] { return control_.Do(TakeSnapshot{}); }), 5);
  clock_.Advance(-seconds(1000));
  EXPECT_FALSE(control_.Do(TakeSnapshot{}).ok());
  clock_.Advance(seconds(60));
  EXPECT_EQ(Taken([&] { return control_.Do(TakeSnapshot{}); }), 1);
}

}  // namespace limited_control_test
}  // namespace ptqwatch::internal
