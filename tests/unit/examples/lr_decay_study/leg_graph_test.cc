#include "leg_graph.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "leg_queue.h"
#include "progress.h"
#include "run_names.h"

namespace ptqwatch::examples {
namespace leg_graph_test {

class Scales : public ::testing::TestWithParam<const char*> {
 protected:
  const StudySettings settings = SettingsOf(GetParam());
  const std::vector<Leg> legs = MakeLegs(settings, {});
};

const Leg* Find(const std::vector<Leg>& legs, const std::string& id) {
  const auto leg =
      std::find_if(legs.begin(), legs.end(), [&](const Leg& other) { return other.id == id; });
  return leg == legs.end() ? nullptr : &*leg;
}

TEST_P(Scales, LegsStandAfterWhatTheyNeed) {
  std::set<std::string> known;
  for (const Leg& leg : legs) {
    for (const std::string& need : leg.needs) EXPECT_TRUE(known.count(need)) << leg.id << need;
    EXPECT_TRUE(known.insert(leg.id).second) << leg.id;
  }
}

TEST_P(Scales, TrainingGoesOnWhereItsParentEnded) {
  for (const Leg& leg : legs) {
    if (!leg.means.empty()) continue;
    EXPECT_LT(leg.from, leg.to) << leg.id;
    EXPECT_LE(leg.to - leg.from, settings.leg) << leg.id;
    // Each leg ends with a measurement.
    EXPECT_EQ(leg.to % settings.every, 0) << leg.id;
    if (leg.parent.empty()) {
      EXPECT_EQ(leg.from, 0) << leg.id;
      continue;
    }
    const Leg* parent = Find(legs, leg.parent);
    ASSERT_NE(parent, nullptr) << leg.id;
    EXPECT_EQ(parent->to, leg.from) << leg.id;
    EXPECT_EQ(parent->seed, leg.seed) << leg.id;
    // A branch leaves the trunk with the rate that it has there.
    EXPECT_DOUBLE_EQ(parent->schedule.LearningRate(leg.from - 1),
                     leg.schedule.LearningRate(leg.from - 1))
        << leg.id;
  }
}

TEST_P(Scales, AveragesAreOfWeightsThatAreKept) {
  size_t means = 0;
  for (const Leg& leg : legs) {
    for (const WeightsMean& mean : leg.means) {
      ++means;
      for (const KeptWeights& kept : mean.members) {
        const Leg* of = Find(legs, kept.leg);
        ASSERT_NE(of, nullptr) << leg.id;
        const bool is_kept = kept.step == of->to ||
                             (of->keeps_weights && kept.step > of->from && kept.step <= of->to);
        EXPECT_TRUE(is_kept && kept.step % settings.every == 0) << kept.leg << " " << kept.step;
      }
    }
  }
  EXPECT_GT(means, 4u);
}

TEST_P(Scales, AveragesAreMeasuredWhereCooldownsEnd) {
  const Leg* averages = Find(legs, RunName(0, "average"));
  ASSERT_NE(averages, nullptr);
  EXPECT_TRUE(std::any_of(averages->means.begin(), averages->means.end(),
                          [&](const WeightsMean& mean) { return mean.step == settings.run; }));
}

TEST_P(Scales, EverySweepHasItsReference) {
  const auto last = LastLegs(legs);
  for (int64_t seed = 0; seed < settings.seeds; ++seed) {
    for (const double rate : settings.rates) {
      const std::string run = RateRun(settings, seed, rate);
      ASSERT_TRUE(last.count(run)) << run;
      EXPECT_EQ(last.at(run)->schedule.peak, rate);
      EXPECT_EQ(last.at(run)->to, settings.run);
    }
    for (const double decay : settings.decays) {
      const std::string run = WeightDecayRun(settings, seed, decay);
      ASSERT_TRUE(last.count(run)) << run;
      EXPECT_EQ(last.at(run)->weight_decay, decay);
    }
  }
  EXPECT_EQ(std::count(settings.cosines.begin(), settings.cosines.end(), settings.run), 1);
}

TEST_P(Scales, AGroupHasAllThatItNeeds) {
  for (const char* group : kGroups) {
    const std::vector<Leg> part = MakeLegs(settings, {group});
    EXPECT_LT(part.size(), legs.size()) << group;
    for (const Leg& leg : part) {
      for (const std::string& need : leg.needs) EXPECT_NE(Find(part, need), nullptr) << leg.id;
    }
  }
  EXPECT_EQ(MakeLegs(settings, {std::begin(kGroups), std::end(kGroups)}).size(), legs.size());
}

INSTANTIATE_TEST_SUITE_P(LegGraph, Scales, ::testing::Values("full", "quick", "tiny"),
                         [](const auto& scale) { return std::string(scale.param); });

TEST(LegGraph, MembersOfASoupSeeOtherBatches) {
  std::set<uint64_t> seeds;
  size_t members = 0;
  for (const Leg& leg : MakeLegs(SettingsOf("full"), {"average"})) {
    if (leg.run.find("member") == std::string::npos) continue;
    ++members;
    ASSERT_TRUE(leg.batch_seed);
    seeds.insert(*leg.batch_seed);
  }
  EXPECT_EQ(members, 6u);
  EXPECT_EQ(seeds.size(), members);
}

TEST(Settings, DifferencesAreNamed) {
  StudySettings other = SettingsOf("full");
  EXPECT_TRUE(Differences(ToJson(other), ToJson(SettingsOf("full"))).empty());
  other.seeds = 2;
  other.text_sha256 = "abc";
  EXPECT_EQ(Differences(ToJson(other), ToJson(SettingsOf("full"))),
            (std::vector<std::string>{"seeds is 2, not 3", "text_sha256 is \"abc\", not \"\""}));
}

TEST(LegQueue, GivesWhatCanBeMade) {
  const std::vector<Leg> legs = {{.id = "a"}, {.id = "b", .needs = {"a"}}, {.id = "c"}};
  LegQueue queue(legs, [](const Leg&) { return false; });
  EXPECT_EQ(queue.Take(), &legs[0]);
  EXPECT_EQ(queue.Take(), &legs[2]);
  EXPECT_EQ(queue.Take(), nullptr);
  queue.Finished(legs[0]);
  EXPECT_EQ(queue.Take(), &legs[1]);
  EXPECT_EQ(queue.finished(), 1u);
}

TEST(LegQueue, AFailureLosesOnlyWhatNeedsIt) {
  const std::vector<Leg> legs = {{.id = "a"}, {.id = "b", .needs = {"a"}}, {.id = "c"}};
  LegQueue queue(legs, [](const Leg& leg) { return leg.id == "c"; });
  queue.Failed(*queue.Take());
  EXPECT_EQ(queue.Take(), nullptr);
  EXPECT_EQ(queue.failed(), 1u);
  EXPECT_EQ(queue.finished(), 1u);
}

TEST(Progress, EstimatesFromTheSpeedSoFar) {
  Progress progress(200, 100);
  EXPECT_EQ(progress.Text(0), "50 %");
  progress.Add(20);
  EXPECT_EQ(progress.Text(10), "60 %, about 40 s left");
  EXPECT_EQ(progress.Text(60), "60 %, about 4 min left");
  progress.Add(80);
  EXPECT_EQ(progress.Text(90), "100 %");
}

}  // namespace leg_graph_test
}  // namespace ptqwatch::examples
