#include "handover/schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "handover/lr_tracker.h"

namespace ptqwatch::internal {
namespace schedule_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Candidates {
  std::vector<int64_t> due;
  std::vector<int64_t> additional;
  void Add(int64_t step, Due kind) {
    if (kind == Due::kYes) due.push_back(step);
    if (kind == Due::kAdditional) additional.push_back(step);
  }
};

Candidates Follow(Schedule& schedule, int64_t first, int64_t last, bool decaying = false,
                  int64_t every = 0) {
  Candidates found;
  for (int64_t step = first; step <= last; ++step) {
    found.Add(step, schedule.Step(step, every, decaying, 0));
  }
  return found;
}

bool IsDue(Schedule& schedule, int64_t step, int64_t every) {
  return schedule.Step(step, every, false, 0) == Due::kYes;
}

TEST(Schedule, IsDueAtMultiples) {
  Schedule schedule({.every = 10});
  EXPECT_THAT(Follow(schedule, 1, 35).due, ElementsAre(10, 20, 30));
  Schedule from_zero({.every = 10});
  EXPECT_THAT(Follow(from_zero, 0, 12).due, ElementsAre(0, 10));
}

TEST(Schedule, IsDueAfterAMultipleThatWasJumpedOver) {
  Schedule schedule({.every = 10});
  EXPECT_FALSE(IsDue(schedule, 7, 0));
  EXPECT_TRUE(IsDue(schedule, 12, 0));
  EXPECT_FALSE(IsDue(schedule, 19, 0));
  EXPECT_TRUE(IsDue(schedule, 41, 0));
}

std::vector<int64_t> Stretched(Schedule schedule, int stretch, bool decaying) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 100; ++step) {
    if (schedule.Step(step, 0, decaying, 0, stretch) != Due::kNo) steps.push_back(step);
  }
  return steps;
}

TEST(Schedule, StretchesInPowersOfTwo) {
  const Schedule schedule({.every = 10, .decay_density = 2});
  EXPECT_THAT(Stretched(schedule, 0, false), ElementsAre(10, 20, 30, 40, 50, 60, 70, 80, 90, 100));
  EXPECT_EQ(Stretched(schedule, 1, false), Stretched(schedule, 0, false));
  EXPECT_THAT(Stretched(schedule, 2, false), ElementsAre(20, 40, 60, 80, 100));
  EXPECT_THAT(Stretched(schedule, 4, false), ElementsAre(80));
  EXPECT_THAT(Stretched(schedule, 0, true), SizeIs(20));
  EXPECT_EQ(Stretched(schedule, 1, true), Stretched(schedule, 1, false));
  EXPECT_EQ(Stretched(schedule, 3, true), Stretched(schedule, 3, false));
}

TEST(Schedule, CoarserGridsLieInFinerOnes) {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.every = 7, .decay_density = 4},
        ScheduleOptions{.log_spaced_per_decade = 20, .decay_density = 4}}) {
    for (const bool decaying : {false, true}) {
      for (int stretch = 0; stretch < 6; ++stretch) {
        const auto fine = Stretched(Schedule(options), stretch, decaying);
        const auto coarse = Stretched(Schedule(options), stretch + 1, decaying);
        EXPECT_TRUE(std::includes(fine.begin(), fine.end(), coarse.begin(), coarse.end()))
            << stretch;
        const auto decay = Stretched(Schedule(options), stretch, true);
        EXPECT_TRUE(std::includes(decay.begin(), decay.end(), fine.begin(), fine.end())) << stretch;
      }
    }
  }
}

TEST(Schedule, SaysWhichStepsAreOnTheGridOfADecay) {
  Schedule schedule({.every = 10, .decay_density = 2});
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 20; ++step) {
    schedule.Step(step, 0, false, 0, 5);
    if (schedule.on_grid()) steps.push_back(step);
  }
  EXPECT_THAT(steps, ElementsAre(5, 10, 15, 20));
}

TEST(Schedule, GoesOnAfterARollback) {
  Schedule schedule({.every = 10});
  EXPECT_TRUE(IsDue(schedule, 20, 0));
  EXPECT_FALSE(IsDue(schedule, 11, 0));
  EXPECT_TRUE(IsDue(schedule, 20, 0));
}

TEST(Schedule, FollowsACommandWithoutACatchUp) {
  Schedule schedule({.every = 1000});
  EXPECT_FALSE(IsDue(schedule, 99, 0));
  EXPECT_FALSE(IsDue(schedule, 101, 10));
  EXPECT_TRUE(IsDue(schedule, 110, 10));
  Schedule log_spaced({.log_spaced_per_decade = 1});
  EXPECT_THAT(Follow(log_spaced, 5, 12).due, ElementsAre(10));
  EXPECT_THAT(Follow(log_spaced, 13, 30, false, /*every=*/8).due, ElementsAre(16, 24));
  Schedule by_time({.every_seconds = 1e6});
  EXPECT_THAT(Follow(by_time, 1, 30, false, /*every=*/8).due, ElementsAre(8, 16, 24));
}

TEST(Schedule, IsDueOnceForARepeatedStep) {
  Schedule schedule({.every = 10});
  EXPECT_TRUE(IsDue(schedule, 10, 0));
  EXPECT_FALSE(IsDue(schedule, 10, 0));
  EXPECT_FALSE(IsDue(schedule, 11, 0));
}

TEST(Schedule, IsDenserWhileTheRateDecays) {
  Schedule schedule({.every = 10, .decay_density = 4});
  EXPECT_THAT(Follow(schedule, 1, 24).additional, IsEmpty());
  const Candidates decay = Follow(schedule, 25, 40, /*decaying=*/true);
  EXPECT_THAT(decay.due, ElementsAre(30, 40));
  EXPECT_THAT(decay.additional, ElementsAre(25, 28, 33, 35, 38));
  EXPECT_THAT(Follow(schedule, 41, 50).additional, IsEmpty());
  Schedule plain({.every = 10, .decay_density = 1});
  EXPECT_THAT(Follow(plain, 1, 50, true).additional, IsEmpty());
  // No denser than the steps.
  Schedule dense({.every = 2, .decay_density = 100});
  EXPECT_THAT(Follow(dense, 1, 4, true).additional, ElementsAre(1, 3));
}

TEST(Schedule, IsEvenOnALogarithmicScale) {
  Schedule schedule({.log_spaced_per_decade = 4});
  EXPECT_THAT(Follow(schedule, 0, 1000).due,
              ElementsAre(1, 2, 4, 6, 10, 18, 32, 57, 100, 178, 317, 563, 1000));
  const Candidates decay = Follow(schedule, 1001, 1800, /*decaying=*/true);
  EXPECT_THAT(decay.due, ElementsAre(1779));
  EXPECT_THAT(decay.additional, ElementsAre(1155, 1334, 1540));
}

TEST(Schedule, IsDueByTheClock) {
  Schedule schedule({.every_seconds = 10, .decay_density = 2});
  Candidates found;
  for (int64_t step = 1; step <= 12; ++step) {
    const auto now = 1000.0 + 3 * static_cast<double>(step - 1);
    found.Add(step, schedule.Step(step, 0, /*decaying=*/step > 8, now));
  }
  EXPECT_THAT(found.due, ElementsAre(5, 8, 11));         // 12, 21, 30 s
  EXPECT_THAT(found.additional, ElementsAre(10));        // 27 s
  EXPECT_DOUBLE_EQ(schedule.SecondsToNext(1), 40 - 33);  // the step takes no part
  // Snapshots that a long step jumped over are due once.
  EXPECT_EQ(schedule.Step(13, 0, false, 1095), Due::kYes);
  EXPECT_EQ(schedule.Step(14, 0, false, 1099), Due::kNo);
  EXPECT_EQ(schedule.Step(15, 0, false, 1100), Due::kYes);
}

TEST(Schedule, KnowsHowFarTheNextOneIs) {
  Schedule schedule({.every = 100});
  Follow(schedule, 130, 130);
  EXPECT_DOUBLE_EQ(schedule.SecondsToNext(0.5), 35);
  Follow(schedule, 131, 131, false, /*every=*/20);
  EXPECT_DOUBLE_EQ(schedule.SecondsToNext(0.5), 4.5);
  Schedule log_spaced({.log_spaced_per_decade = 1});
  Follow(log_spaced, 130, 130);
  EXPECT_DOUBLE_EQ(log_spaced.SecondsToNext(0.5), 435);
}

TEST(SecondsBetween, FollowsTheKindOfSchedule) {
  EXPECT_DOUBLE_EQ(SecondsBetween({.every = 100}, 0, 7, 0.5), 50);
  EXPECT_DOUBLE_EQ(SecondsBetween({.every = 100}, 20, 7, 0.5), 10);
  EXPECT_DOUBLE_EQ(SecondsBetween({.every_seconds = 30}, 0, 7, 0.5), 30);
  EXPECT_DOUBLE_EQ(SecondsBetween({.every_seconds = 30}, 20, 7, 0.5), 10);
  EXPECT_DOUBLE_EQ(SecondsBetween({.log_spaced_per_decade = 1}, 0, 100, 0.5), 450);
}

// Linear warmup over 30, constant to 800, linear to 0 at 1000.
double Wsd(int64_t step) {
  if (step <= 30) return 1e-2 * static_cast<double>(step) / 30;
  return step <= 800 ? 1e-2 : 1e-2 * static_cast<double>(1000 - step) / 200;
}

Candidates Train(Schedule& schedule, LrTracker& lr, int64_t first, int64_t last) {
  Candidates found;
  for (int64_t step = first; step <= last; ++step) {
    lr.Step(step, Wsd(step), std::nullopt);
    found.Add(step, schedule.Step(step, 0, lr.phase() == LrPhase::kDecay, 0));
  }
  return found;
}

TEST(Schedule, MeetsTheSameStepsInAResumedRun) {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.every = 100}, ScheduleOptions{.log_spaced_per_decade = 20}}) {
    Schedule whole(options);
    LrTracker whole_lr;
    Train(whole, whole_lr, 1, 850);
    const Candidates expected = Train(whole, whole_lr, 851, 1000);
    EXPECT_FALSE(expected.due.empty());
    EXPECT_FALSE(expected.additional.empty());
    // All that an attempt leaves behind: corners, and the newest report.
    LrTracker lr;
    for (const int64_t step : {1, 30, 800, 825}) lr.Step(step, Wsd(step), std::nullopt);
    lr.Restore(LrPhase::kDecay, 801);
    Schedule schedule(options);
    const Candidates found = Train(schedule, lr, 851, 1000);
    EXPECT_EQ(found.due, expected.due);
    EXPECT_EQ(found.additional, expected.additional);
  }
}

}  // namespace schedule_test
}  // namespace ptqwatch::internal
