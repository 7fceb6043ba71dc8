// How often verdicts are wrong and how soon they are right, on streams whose truth is known.
// docs/verdicts.md gives these rates.

#include <algorithm>
#include <cmath>
#include <string>

#include "analysis/analyzer.h"
#include "analysis_fixture.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace verdict_rates_test {

// Alarms that begin, in `runs` runs of `snapshots` snapshots without a change.
int FalseAlarms(Stream stream, int runs, int snapshots) {
  int alarms = 0;
  for (int run = 0; run < runs; ++run) {
    Analyzer analyzer;
    bool before = false;
    for (int i = 1; i <= snapshots; ++i) {
      const bool now = IsAlarm(analyzer.Add(stream.Next(i)).state);
      alarms += now && !before;
      before = now;
    }
  }
  return alarms;
}

// In how many of `runs` runs a rise by half after 30 snapshots is found at one of its first three.
int JumpsFound(Stream stream, int runs) {
  int found = 0;
  for (int run = 0; run < runs; ++run) {
    Analyzer analyzer;
    bool seen = false;
    for (int i = 1; i <= 33; ++i) {
      const Verdict verdict = analyzer.Add(stream.Next(i, i > 30 ? 1.5 : 1.0));
      seen |= i > 30 && verdict.state == VerdictState::kSpike;
    }
    found += seen;
  }
  return found;
}

TEST(VerdictRates, AtMostOneFalseAlarmOnAPlateau) {
  const int alarms = FalseAlarms({}, 5, 200);
  RecordProperty("in_1000_snapshots", alarms);
  EXPECT_LE(alarms, 1);
}

TEST(VerdictRates, AtMostOneFalseAlarmIfTheErrorGrowsSlowly) {
  const int alarms = FalseAlarms({.growth = 0.001}, 5, 200);
  RecordProperty("in_1000_snapshots", alarms);
  EXPECT_LE(alarms, 1);
}

TEST(VerdictRates, FindsAJumpWithinThreeSnapshots) {
  const int all = JumpsFound({}, 100);
  const int alone = JumpsFound({.trace_scatter = 0, .quantizers = 1}, 100);
  RecordProperty("of_100_with_all_series", all);
  RecordProperty("of_100_with_one_series", alone);
  EXPECT_GE(all, 99);
  // A test that knew baseline and scatter would find 98 at this rate of false alarms.
  EXPECT_GE(alone, 70);
}

struct DecaysFound {
  int by_half = 0;       // of the decay
  int false_alarms = 0;  // on the plateau
  double snapshots = 0;  // of the decay at the alarm, in the mean; 16 if there is none
};

// Runs of 30 snapshots of a plateau and 16 of a decay to zero, in which the error doubles.
DecaysFound FindDecays(Stream stream, int runs) {
  constexpr int kPlateau = 30;
  constexpr int kDecay = 16;
  DecaysFound found;
  for (int run = 0; run < runs; ++run) {
    Analyzer analyzer;
    int first = kDecay;
    for (int i = 1; i <= kPlateau + kDecay; ++i) {
      const double decayed = std::max(0.0, static_cast<double>(i - kPlateau) / kDecay);
      const Verdict verdict =
          analyzer.Add(stream.Next(i, std::exp(std::log(2) * decayed), kRate * (1 - decayed)));
      if (!IsAlarm(verdict.state)) continue;
      found.false_alarms += i <= kPlateau;
      if (i > kPlateau) first = std::min(first, i - kPlateau);
    }
    found.by_half += first <= kDecay / 2;
    found.snapshots += static_cast<double>(first) / runs;
  }
  return found;
}

// Curvature with every third snapshot, as a run with little time has it; noise with every one.
TEST(VerdictRates, NoiseShowsADecayEarlier) {
  constexpr int kRuns = 30;
  for (const int quantizers : {1, 4}) {
    SCOPED_TRACE(quantizers);
    const Stream without{.trace_every = 3, .quantizers = quantizers};
    Stream with = without;
    with.noise_scatter = 0.08;
    const DecaysFound before = FindDecays(without, kRuns);
    const DecaysFound after = FindDecays(with, kRuns);
    RecordProperty("by_half_without_" + std::to_string(quantizers), before.by_half);
    RecordProperty("by_half_with_" + std::to_string(quantizers), after.by_half);
    RecordProperty("mean_without_" + std::to_string(quantizers), std::to_string(before.snapshots));
    RecordProperty("mean_with_" + std::to_string(quantizers), std::to_string(after.snapshots));
    RecordProperty("false_without_" + std::to_string(quantizers), before.false_alarms);
    RecordProperty("false_with_" + std::to_string(quantizers), after.false_alarms);
    EXPECT_GE(after.by_half, before.by_half);
    EXPECT_LT(after.snapshots, before.snapshots);
    EXPECT_LE(after.false_alarms, before.false_alarms + 1);
  }
}

TEST(VerdictRates, AtMostOneFalseAlarmWithNoise) {
  for (const int quantizers : {1, 4}) {
    const int alarms =
        FalseAlarms({.noise_scatter = 0.08, .trace_every = 3, .quantizers = quantizers}, 5, 200);
    RecordProperty("in_1000_snapshots_" + std::to_string(quantizers), alarms);
    EXPECT_LE(alarms, 1);
  }
}

TEST(VerdictRates, ReportsADriftAsADrift) {
  for (const int quantizers : {1, 4}) {
    int drifts = 0, alarms = 0;
    Stream stream{
        .trace_scatter = quantizers > 1 ? 0.06 : 0, .growth = 0.01, .quantizers = quantizers};
    for (int run = 0; run < 20; ++run) {
      Analyzer analyzer;
      bool drifting = false, alarmed = false;
      for (int i = 1; i <= 80; ++i) {
        const VerdictState state = analyzer.Add(stream.Next(i)).state;
        drifting |= state == VerdictState::kDrifting;
        alarmed |= IsAlarm(state);
      }
      drifts += drifting;
      alarms += alarmed;
    }
    EXPECT_GE(drifts, 18) << quantizers;
    EXPECT_LE(alarms, 2) << quantizers;
  }
}

TEST(VerdictRates, MissingSnapshotsChangeNothing) {
  Stream stream;
  int found = 0;
  for (int run = 0; run < 20; ++run) {
    Analyzer analyzer;
    int alarms = 0;
    for (int i = 1; i <= 40; ++i) {
      // Every third is missing, every second has no curvature.
      Report report = stream.Next(i, i > 36 ? 1.6 : 1.0);
      if (i % 3 == 0) continue;
      if (i % 2 == 0) report.curvature.reset();
      const Verdict verdict = analyzer.Add(report);
      if (i <= 36) alarms += IsAlarm(verdict.state);
      if (i == 40) found += IsAlarm(verdict.state);
    }
    EXPECT_EQ(alarms, 0);
  }
  EXPECT_GE(found, 19);
}

TEST(VerdictRates, TheSameReportsGiveTheSameVerdicts) {
  Stream stream;
  Analyzer first, second;
  for (int i = 1; i <= 60; ++i) {
    const Report report = stream.Next(i, i > 40 ? 1.7 : 1.0, i > 40 ? 0.005 : kRate);
    EXPECT_EQ(first.Add(report), second.Add(report));
  }
}

TEST(VerdictRates, AStepOfTheLearningRateIsNoAlarmByItself) {
  Stream stream;
  int alarms = 0;
  for (int run = 0; run < 40; ++run) {
    Analyzer analyzer;
    bool alarmed = false;
    for (int i = 1; i <= 40; ++i) {
      alarmed |= IsAlarm(analyzer.Add(stream.Next(i, 1.0, i > 20 ? 0.005 : kRate)).state);
    }
    alarms += alarmed;
  }
  RecordProperty("of_40", alarms);
  EXPECT_LE(alarms, 2);
}

}  // namespace verdict_rates_test
}  // namespace ptqwatch::internal
