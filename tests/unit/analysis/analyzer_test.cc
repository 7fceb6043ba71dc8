#include "analysis/analyzer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "analysis_fixture.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace analyzer_test {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// A decay of so many snapshots, 400 steps apart, to `end` times the baseline of error and trace.
std::vector<Verdict> FeedDecay(Analyzer& analyzer, double end, double trace_end, int count = 8) {
  std::vector<Verdict> verdicts;
  for (int i = 1; i <= count; ++i) {
    const double part = i / static_cast<double>(count);
    Report report = At(12800 + 400 * i, 0.099 * std::pow(end, part), kRate * (1 - part));
    report.decay_onset_step = 12801;
    SetTrace(report, 120 * std::pow(trace_end, part));
    verdicts.push_back(analyzer.Add(report));
  }
  return verdicts;
}

TEST(Analyzer, WarmsUpUntilItHasABaseline) {
  Analyzer analyzer;
  for (size_t i = 0; i < 4; ++i) {
    const Verdict verdict = analyzer.Add(At(800 * static_cast<int64_t>(i + 1), kStable[i]));
    EXPECT_EQ(verdict.state, VerdictState::kWarmingUp);
    EXPECT_EQ(verdict.severity_nats, std::nullopt);
  }
  EXPECT_EQ(analyzer.Add(At(4000, 0.1)).state, VerdictState::kHealthy);
}

TEST(Analyzer, WarmsUpAsLongAsTheLearningRateRises) {
  Analyzer analyzer;
  for (int i = 1; i < 20; ++i) {
    Report report = At(i, 0.1 * i, 0.0001 * i);
    report.lr_phase = LrPhase::kWarmup;
    EXPECT_EQ(analyzer.Add(report).state, VerdictState::kWarmingUp);
  }
}

TEST(Analyzer, CallsThePlateauHealthy) {
  Analyzer analyzer;
  const Verdict verdict = FeedStable(analyzer);
  EXPECT_EQ(verdict.state, VerdictState::kHealthy);
  EXPECT_EQ(verdict.onset_step, std::nullopt);
  EXPECT_LT(*verdict.sigmas, *verdict.alarm_sigmas);
  EXPECT_TRUE(verdict.advice.empty());
  EXPECT_THAT(verdict.summary,
              HasSubstr("3-bit GPTQ costs 0.098 nats at step 12800, as the plateau predicts"));
}

TEST(Analyzer, FindsTheRiseOfADecay) {
  Analyzer analyzer;
  FeedStable(analyzer);
  const std::vector<Verdict> verdicts = FeedDecay(analyzer, 2.1, 2.7);
  EXPECT_EQ(verdicts[0].state, VerdictState::kHealthy);
  EXPECT_EQ(verdicts[3].state, VerdictState::kDecayDegradation);
  const Verdict& last = verdicts.back();
  EXPECT_EQ(last.state, VerdictState::kDecayDegradation);
  EXPECT_EQ(last.onset_step, 13200) << "the first snapshot of the decay";
  EXPECT_EQ(last.onset_low_step, 13200);
  EXPECT_GE(*last.onset_high_step, 13200);
  EXPECT_LE(*last.onset_high_step, 14400);
  EXPECT_GT(*last.sigmas, *last.alarm_sigmas);
  EXPECT_LT(*last.severity_low_ratio, *last.severity_ratio);
  EXPECT_GT(*last.severity_high_ratio, *last.severity_ratio);
  EXPECT_GT(*last.severity_low_ratio, 1.2);
  EXPECT_GT(*last.severity_low_nats, 0.02);
  EXPECT_THAT(last.summary, HasSubstr("its baseline, rising since step 13200: "));
  EXPECT_THAT(last.summary, EndsWith(StrFormat(
                                "%.1f sigma (quantization %.1f, curvature %.1f; ends below 1.3)",
                                *last.sigmas, *last.evidence[0].sigmas, *last.evidence[1].sigmas)));
  ASSERT_GE(last.evidence.size(), 4U);
  EXPECT_EQ(last.evidence[0].series, "quantization");
  EXPECT_EQ(last.evidence[1].series, "curvature");
  EXPECT_EQ(last.evidence[2].series, "loss_delta_gptq3");
  EXPECT_NEAR(*last.evidence[2].value, 0.099 * 2.1, 1e-9);
  EXPECT_NEAR(*last.evidence[2].expected, 0.1, 0.01);
}

// Four quantizers and a trace whose logarithms rise from a third of a decay on.
TEST(Analyzer, FindsTheOnsetOfARampWithinItsInterval) {
  constexpr int kRuns = 60, kPlateau = 20, kDecay = 15, kFirst = 6;
  int covered = 0, near = 0, later = 0, alarms = 0;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    Stream stream{.random = std::mt19937_64(seed)};
    Analyzer analyzer;
    for (int i = 1; i <= kPlateau; ++i) analyzer.Add(stream.Next(i));
    Verdict last;
    for (int i = 1; i <= kDecay; ++i) {
      const double lost = static_cast<double>(i) / kDecay;
      const double ramp = std::max(0.0, lost - (kFirst - 1.0) / kDecay);
      const Verdict verdict =
          analyzer.Add(stream.Next(kPlateau + i, std::exp(1.5 * ramp), kRate * (1 - lost)));
      if (last.onset_step && verdict.onset_step) later += *verdict.onset_step > *last.onset_step;
      last = verdict;
    }
    if (last.state != VerdictState::kDecayDegradation) continue;
    ++alarms;
    const int64_t truth = 1000 * (kPlateau + kFirst);
    covered += *last.onset_low_step <= truth && truth <= *last.onset_high_step;
    near += std::abs(*last.onset_step - truth) <= 3000;
  }
  EXPECT_EQ(alarms, kRuns);
  EXPECT_EQ(later, 0);
  RecordProperty("covered", covered);
  RecordProperty("near", near);
  EXPECT_GE(covered, 0.9 * kRuns);
  EXPECT_GE(near, 0.8 * kRuns);
}

TEST(Analyzer, ADecayAfterASpikeHasAnOnsetOfItsOwn) {
  Analyzer analyzer;
  FeedStable(analyzer);
  analyzer.Add(At(13600, 0.2));
  EXPECT_EQ(analyzer.Add(At(14400, 0.2)).onset_step, 13600);
  Verdict verdict;
  for (int i = 1; i <= 8; ++i) {
    verdict = analyzer.Add(At(14400 + 400 * i, 0.2 * (1 + 0.1 * i), kRate * (1 - i / 8.0)));
  }
  EXPECT_EQ(verdict.state, VerdictState::kDecayDegradation);
  EXPECT_GT(*verdict.onset_step, 14400);
}

TEST(Analyzer, KeepsTheStepAtWhichTheLossConvergedUntilItImproves) {
  // Stands from step 20000 to 60000, and then falls again.
  const auto loss = [](int64_t step) {
    const double place = static_cast<double>(step) / 1000;
    const double stands = std::pow(std::min(place, 20.0), -0.1);
    return 4 * stands * std::pow(std::max(place, 60.0) / 60, -0.5);
  };
  Analyzer analyzer;
  std::optional<int64_t> first;
  int withdrawn = 0;
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (int64_t step = 1000; step <= 160000; step += 1000) {
    Report report = At(step, 0.1);
    report.probe_loss_nats = loss(step) * std::exp(0.005 * normal(random));
    const Verdict verdict = analyzer.Add(report);
    if (!first) first = verdict.loss_converged_step;
    if (step < 62000) {
      EXPECT_EQ(verdict.loss_converged_step, first) << step;
    }
    if (!first) continue;
    if (verdict.summary.find(StrFormat(". The loss improves again after step %d", *first)) !=
        std::string::npos)
      ++withdrawn;
  }
  ASSERT_TRUE(first);
  EXPECT_NEAR(static_cast<double>(*first), 20000, 4000);
  EXPECT_EQ(withdrawn, 1);
}

TEST(Analyzer, SaysFromWhereOnTheLossOfTheWatchedQuantizerIsNoQuadratic) {
  Analyzer analyzer;
  FeedStable(analyzer);
  Report report = At(13600, 0.1);
  report.quantization[0].beyond_quadratic_scale = 0.75;
  Verdict verdict = analyzer.Add(report);
  EXPECT_EQ(verdict.state, VerdictState::kHealthy) << "it raises no alarm";
  EXPECT_EQ(verdict.evidence.back().series, "beyond_quadratic_gptq3");
  EXPECT_EQ(verdict.evidence.back().value, 0.75);
  verdict = analyzer.Add(At(14400, 0.1));
  EXPECT_NE(verdict.evidence.back().series, "beyond_quadratic_gptq3");
}

TEST(Analyzer, CallsADecayWithoutARiseHealthy) {
  Analyzer analyzer;
  FeedStable(analyzer);
  for (const Verdict& verdict : FeedDecay(analyzer, 1.0, 1.0)) {
    EXPECT_EQ(verdict.state, VerdictState::kHealthy);
  }
}

TEST(Analyzer, CurvatureAloneIsNoAlarm) {
  Analyzer analyzer;
  FeedStable(analyzer);
  const std::vector<Verdict> verdicts = FeedDecay(analyzer, 1.0, 3.0);
  for (const Verdict& verdict : verdicts) EXPECT_FALSE(IsAlarm(verdict.state));
  EXPECT_EQ(verdicts.back().state, VerdictState::kUnclear);
  EXPECT_THAT(verdicts.back().summary, HasSubstr("too little for an alarm"));
}

TEST(Analyzer, SaysWhichWeightsAreNotMeasured) {
  Analyzer analyzer;
  FeedStable(analyzer);
  Report report = At(13600, 0.1);
  report.unseen = {.ratio = 0.2, .largest = "mix.weight", .reason = "goes into aten::mix"};
  EXPECT_THAT(analyzer.Add(report).summary, Not(HasSubstr("not measured")));
  report.step = 14000;
  report.unseen->ratio = 0.874;
  const std::string sentence =
      ". 87% of the matrix weights are not measured; the largest is 'mix.weight': goes into "
      "aten::mix";
  EXPECT_THAT(analyzer.Add(report).summary, EndsWith(sentence));
  report.step = 14400;
  report.quantization.clear();
  EXPECT_THAT(analyzer.Add(report).summary, EndsWith(sentence));
}

TEST(Analyzer, FindsAJumpWithoutADecay) {
  Analyzer analyzer;
  FeedStable(analyzer);
  analyzer.Add(At(13600, 0.2));
  const Verdict verdict = analyzer.Add(At(14400, 0.21));
  EXPECT_EQ(verdict.state, VerdictState::kSpike);
  EXPECT_EQ(verdict.onset_step, 13600);
  ASSERT_FALSE(verdict.advice.empty());
  EXPECT_EQ(verdict.advice[0].action, AdviceAction::kInspectRun);
}

TEST(Analyzer, AJumpIsADriftIfTheLossFallsByMore) {
  const auto report = [](int i, double delta, double loss) {
    Report made = At(40 * i, delta);
    made.probe_loss_nats = loss;
    made.quantization[0].loss_nats = loss + delta;
    return made;
  };
  for (const double gain : {0.0, 0.01, 0.03}) {
    Analyzer analyzer;
    for (int i = 1; i <= 14; ++i) analyzer.Add(report(i, 0.005 + 0.0005 * (i % 3), 2.4));
    analyzer.Add(report(15, 0.02, 2.4 - gain));
    const Verdict verdict = analyzer.Add(report(16, 0.02, 2.4 - gain));
    EXPECT_EQ(verdict.state, gain > 0.015 ? VerdictState::kDrifting : VerdictState::kSpike) << gain;
    if (gain > 0.015) {
      EXPECT_THAT(verdict.summary, HasSubstr("the loss itself falls by more"));
    }
  }
}

TEST(Analyzer, OneWildSnapshotIsNoAlarm) {
  Analyzer analyzer;
  FeedStable(analyzer);
  EXPECT_FALSE(IsAlarm(analyzer.Add(At(13600, 0.6)).state));
  EXPECT_FALSE(IsAlarm(analyzer.Add(At(14400, 0.1)).state));
  EXPECT_EQ(analyzer.Add(At(15200, 0.099)).state, VerdictState::kHealthy);
}

TEST(Analyzer, RecoversFromASpike) {
  Analyzer analyzer;
  FeedStable(analyzer);
  for (int i = 1; i <= 4; ++i) analyzer.Add(At(12800 + 800 * i, 0.2));
  std::vector<VerdictState> states;
  for (int i = 5; i <= 10; ++i) states.push_back(analyzer.Add(At(12800 + 800 * i, 0.1)).state);
  EXPECT_TRUE(states[1] == VerdictState::kRecovering || states[2] == VerdictState::kRecovering ||
              states[0] == VerdictState::kRecovering);
  EXPECT_EQ(states.back(), VerdictState::kHealthy);
}

TEST(Analyzer, NothingBelowTheFloorIsAnAlarm) {
  Analyzer analyzer;
  // 0.005 %, and then thirty times that.
  for (int i = 1; i <= 20; ++i) analyzer.Add(At(800 * i, 0.0001 * (1 + 0.1 * (i % 3))));
  for (int i = 21; i <= 30; ++i) {
    const Verdict verdict = analyzer.Add(At(800 * i, 0.003));
    EXPECT_FALSE(IsAlarm(verdict.state));
    EXPECT_EQ(verdict.severity_ratio, std::nullopt);
  }
}

TEST(Analyzer, GivesNoRatioToABaselineOfZero) {
  Analyzer analyzer;
  for (int i = 1; i <= 20; ++i) analyzer.Add(At(800 * i, i % 2 == 0 ? 0.0002 : -0.0002));
  analyzer.Add(At(800 * 21, 0.05));
  const Verdict verdict = analyzer.Add(At(800 * 22, 0.05));
  EXPECT_EQ(verdict.state, VerdictState::kSpike);
  EXPECT_EQ(verdict.severity_ratio, std::nullopt);
  EXPECT_NEAR(*verdict.severity_nats, 0.05, 0.005);
  EXPECT_THAT(verdict.summary,
              HasSubstr("costs 0.05 nats at step 17600, 0.0499 above baseline since step 16800"));
  EXPECT_THAT(verdict.summary, Not(HasSubstr("inf")));
}

TEST(Analyzer, SaysUnknownWithTheReasonIfNothingWasMeasured) {
  Analyzer analyzer;
  FeedStable(analyzer);
  Report failed = At(13600, 0.1);
  failed.quantization[0].status = ProbeStatus::kOutOfTime;
  failed.quantization[0].status_detail = "20 s were not enough";
  Verdict verdict = analyzer.Add(failed);
  EXPECT_EQ(verdict.state, VerdictState::kUnknown);
  EXPECT_EQ(verdict.summary,
            "3-bit GPTQ was not measured at step 13600: out_of_time (20 s were not enough)");
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    verdict = analyzer.Add(At(14400, bad));
    EXPECT_EQ(verdict.state, VerdictState::kUnknown);
    EXPECT_THAT(verdict.summary, HasSubstr("no finite loss increase"));
  }
  Report missing = At(14400, 0.1);
  missing.quantization[0].delta_nats.reset();
  EXPECT_EQ(analyzer.Add(missing).state, VerdictState::kUnknown);
  missing.quantization.clear();
  EXPECT_THAT(analyzer.Add(missing).summary, HasSubstr("no quantizer"));
}

TEST(Analyzer, NamesNoStepThatIsUnknown) {
  EXPECT_EQ(Analyzer().Add(At(-1, 0.1)).summary,
            "3-bit GPTQ costs 0.1 nats; 1 of 5 snapshots for a baseline");
  EXPECT_THAT(Analyzer().Add(At(-1, std::nan(""))).summary, HasSubstr("was not measured: "));
}

TEST(Analyzer, KeepsAnAlarmAcrossASnapshotThatWasNotMeasured) {
  Analyzer analyzer;
  FeedStable(analyzer);
  for (int i = 1; i <= 3; ++i) analyzer.Add(At(12800 + 400 * i, 0.2, kRate * (1 - 0.1 * i)));
  EXPECT_EQ(analyzer.Add(At(14400, std::nan(""), 0.006)).state, VerdictState::kUnknown);
  EXPECT_EQ(analyzer.Add(At(14800, 0.2, 0.005)).state, VerdictState::kDecayDegradation);
}

// The report of a snapshot that could not be loaded lists no quantizer.
TEST(Analyzer, KeepsItsSeriesAcrossASnapshotThatCouldNotBeLoaded) {
  Report lost = At(14400, 0.1, 0.006);
  lost.probe_status = ProbeStatus::kFailed;
  lost.probe_status_detail = "the device is out of memory";
  lost.quantization.clear();
  Analyzer analyzer;
  FeedStable(analyzer);
  for (int i = 1; i <= 3; ++i) analyzer.Add(At(12800 + 400 * i, 0.2, kRate * (1 - 0.1 * i)));
  const Verdict verdict = analyzer.Add(lost);
  EXPECT_EQ(verdict.state, VerdictState::kUnknown);
  EXPECT_EQ(verdict.summary,
            "nothing was measured at step 14400: failed (the device is out of memory)");
  EXPECT_EQ(analyzer.Add(At(14800, 0.2, 0.005)).state, VerdictState::kDecayDegradation);
}

// An alarm may last for more snapshots than are remembered in full.
TEST(Analyzer, RemembersTheBaselineOfALongAlarm) {
  Analyzer analyzer;
  FeedStable(analyzer);
  Verdict verdict;
  for (int i = 1; i <= 1500; ++i) verdict = analyzer.Add(At(12800 + 2 * i, 0.2));
  EXPECT_EQ(verdict.state, VerdictState::kSpike);
  EXPECT_EQ(verdict.onset_step, 12802);
  EXPECT_NEAR(*verdict.severity_ratio, 2, 0.2);
}

TEST(Analyzer, JudgesADecayOfManySnapshots) {
  Analyzer analyzer;
  FeedStable(analyzer);
  bool alarm = false;
  Verdict verdict;
  for (int i = 1; i <= 1500; ++i) {
    const double part = i / 1500.0;
    verdict = analyzer.Add(At(12800 + 2 * i, 0.1 * std::pow(3, part), kRate * (1 - part)));
    alarm |= IsAlarm(verdict.state);
    if (alarm) {
      ASSERT_EQ(verdict.state, VerdictState::kDecayDegradation) << verdict.summary;
    }
  }
  EXPECT_TRUE(alarm);
  EXPECT_GT(*verdict.severity_ratio, 1.5);
}

// A run that is resumed at a lower rate soon after its start, or whose first snapshot has another
// rate than the schedule.
TEST(Analyzer, TakesNoRateForThePlateauThatFewSnapshotsHad) {
  Analyzer analyzer;
  for (int i = 1; i <= 3; ++i) analyzer.Add(At(100 * i, 0.05, 5 * kRate));
  const auto add = [&](int i, double delta) {
    Report report = At(800 * i, delta);
    report.lr_phase = LrPhase::kStable;
    return analyzer.Add(report);
  };
  EXPECT_EQ(add(1, kStable[0]).state, VerdictState::kWarmingUp);
  Verdict verdict;
  for (int i = 2; i <= 16; ++i) verdict = add(i, kStable[static_cast<size_t>(i - 1)]);
  EXPECT_EQ(verdict.state, VerdictState::kHealthy) << verdict.summary;
  add(17, 0.2);
  EXPECT_EQ(add(18, 0.21).state, VerdictState::kSpike);
  // The higher rate again, of which there is no baseline yet.
  EXPECT_EQ(analyzer.Add(At(800 * 19, 0.05, 5 * kRate)).state, VerdictState::kWarmingUp);
}

TEST(Analyzer, WatchesGptqWithTheFewestBitsFromThreeOn) {
  const auto watched = [](std::vector<QuantizationReport> entries) {
    Report report = At(100, 0);
    report.quantization = std::move(entries);
    return Analyzer().Add(report).summary;
  };
  EXPECT_THAT(
      watched({Entry(QuantizationMethod::kRtn, 3, 1), Entry(QuantizationMethod::kGptq, 4, 2),
               Entry(QuantizationMethod::kGptq, 2, 3), Entry(QuantizationMethod::kGptq, 3, 4)}),
      HasSubstr("3-bit GPTQ costs 4 nats"));
  EXPECT_THAT(watched({Entry(QuantizationMethod::kRtn, 8, 1), Entry(QuantizationMethod::kRtn, 4, 2),
                       Entry(QuantizationMethod::kGptq, 2, 3)}),
              HasSubstr("4-bit RTN costs 2 nats"));
  EXPECT_THAT(
      watched({Entry(QuantizationMethod::kRtn, 2, 1), Entry(QuantizationMethod::kGptq, 2, 3)}),
      HasSubstr("2-bit RTN costs 1"));
}

TEST(Analyzer, TellsFormatsOfOneMethodAndWidthApart) {
  Analyzer analyzer;
  const auto add = [&](int64_t step, double delta, double rate) {
    Report report = At(step, 0, rate);
    report.probe_loss_nats = kLoss - (rate < kRate ? 0.3 : 0);
    report.quantization = {Entry(QuantizationMethod::kGptq, 4, delta),
                           Entry(QuantizationMethod::kGptq, 4, 0.1)};
    report.quantization[0].format = "mxfp4";
    for (QuantizationReport& entry : report.quantization) {
      entry.loss_nats = *report.probe_loss_nats + *entry.delta_nats;
    }
    return analyzer.Add(report);
  };
  Verdict verdict;
  for (size_t i = 0; i < kStable.size(); ++i) {
    verdict = add(800 * static_cast<int64_t>(i + 1), kStable[i], kRate);
  }
  for (int i = 0; i < 8; ++i) verdict = add(13200 + 400 * i, 0.22, 0.006 - 0.0005 * i);
  EXPECT_EQ(verdict.state, VerdictState::kDecayDegradation);
  EXPECT_EQ(verdict.format, "mxfp4");
  EXPECT_THAT(verdict.summary, HasSubstr("4-bit GPTQ (mxfp4)"));
  ASSERT_EQ(verdict.outlook.size(), 2U);
  EXPECT_EQ(verdict.outlook[0].format, "mxfp4");
  EXPECT_LT(*verdict.outlook[0].gain_kept_ratio, 0.7);
  EXPECT_EQ(verdict.outlook[1].format, std::nullopt);
  EXPECT_NEAR(*verdict.outlook[1].gain_kept_ratio, 1, 0.01);
  std::vector<std::string> series;
  for (const Evidence& evidence : verdict.evidence) series.push_back(evidence.series);
  EXPECT_THAT(series, ::testing::IsSupersetOf({"loss_delta_gptq-mxfp4", "loss_delta_gptq4"}));
}

TEST(Analyzer, StartsAgainWhenTheFingerprintOrAQuantizerChanges) {
  for (const bool fingerprint : {true, false}) {
    Analyzer analyzer;
    FeedStable(analyzer);
    Report other = At(13600, 0.3);
    if (fingerprint) {
      other.fingerprint = "g";
    } else {
      other.quantization[0].group_size = 32;
    }
    EXPECT_EQ(analyzer.Add(other).state, VerdictState::kWarmingUp);
  }
}

TEST(Analyzer, DropsWhatARollbackUndid) {
  Analyzer analyzer;
  FeedStable(analyzer);
  Analyzer straight = analyzer;
  for (int i = 1; i <= 3; ++i) analyzer.Add(At(12800 + 800 * i, 0.2));
  // Back to step 12800: that snapshot is taken again, the spike never happened.
  Report again = At(12800, 0.098);
  again.sequence = 20000;
  again.rolled_back = true;
  EXPECT_EQ(analyzer.Add(again).state, VerdictState::kHealthy);
  straight.Add(again);
  Report next = At(13600, 0.101);
  next.sequence = 20001;
  EXPECT_EQ(analyzer.Add(next), straight.Add(next));
  // All the way back: too few points for a baseline.
  Report start = At(1600, 0.2);
  start.sequence = 20002;
  EXPECT_EQ(analyzer.Add(start).state, VerdictState::kWarmingUp);
}

void SetPooled(Report& report, double delta) {
  PooledLoss& pooled = report.pooled.emplace();
  pooled.status = ProbeStatus::kOk;
  pooled.delta_nats = delta;
}

const Evidence& OfWatched(const Verdict& verdict) {
  for (const Evidence& evidence : verdict.evidence) {
    if (evidence.series == "loss_delta_gptq3") return evidence;
  }
  static const Evidence none;
  return none;
}

// The further tokens cost more: a mixture of both series would show a jump.
TEST(Analyzer, RestsOnAllProbeSetsWhileEachSnapshotHasThem) {
  Analyzer mixed;
  Analyzer first_set;
  Analyzer all_sets;
  Verdict verdict;
  constexpr size_t kMissing = 12;
  for (size_t i = 0; i < kStable.size(); ++i) {
    const int64_t step = 800 * static_cast<int64_t>(i + 1);
    Report report = At(step, kStable[i]);
    // A small first snapshot.
    if (i != 0 && i != kMissing) SetPooled(report, 2 * kStable[i]);
    verdict = mixed.Add(report);
    const Verdict of_first = first_set.Add(At(step, kStable[i]));
    if (i == 0) {
      EXPECT_EQ(verdict, of_first);
    } else if (i < kMissing) {
      const Verdict of_all = all_sets.Add(At(step, 2 * kStable[i]));
      EXPECT_EQ(verdict.state, of_all.state);
      EXPECT_EQ(verdict.summary, of_all.summary);
      EXPECT_EQ(OfWatched(verdict).value, OfWatched(of_all).value);
    } else {
      EXPECT_EQ(verdict, of_first) << i;
    }
    EXPECT_FALSE(IsAlarm(verdict.state)) << i;
  }
  EXPECT_EQ(verdict.state, VerdictState::kHealthy) << verdict.summary;
}

TEST(Analyzer, FindsTheRiseOfADecayOnAllProbeSets) {
  Analyzer analyzer;
  for (size_t i = 0; i < kStable.size(); ++i) {
    Report report = At(800 * static_cast<int64_t>(i + 1), 0.1);
    SetPooled(report, kStable[i]);
    analyzer.Add(report);
  }
  Verdict verdict;
  for (int64_t i = 1; i <= 4; ++i) {
    // The first set alone shows nothing.
    Report report = At(12800 + 800 * i, 0.1, kRate * (1 - 0.2 * static_cast<double>(i)));
    SetPooled(report, 0.1 + 0.03 * static_cast<double>(i));
    verdict = analyzer.Add(report);
  }
  EXPECT_EQ(verdict.state, VerdictState::kDecayDegradation) << verdict.summary;
}

TEST(Analyzer, PutsALateReportInItsPlace) {
  Analyzer in_order, late;
  FeedStable(in_order);
  FeedStable(late);
  const Report first = At(13600, 0.2), second = At(14400, 0.21), third = At(15200, 0.22);
  in_order.Add(first);
  in_order.Add(second);
  late.Add(second);
  late.Add(first);
  EXPECT_EQ(late.Add(third), in_order.Add(third));
}

TEST(Analyzer, InsertsCheckpointsInAnyOrder) {
  Analyzer in_order, shuffled;
  const auto report = [](int64_t step, int64_t sequence) {
    Report made = At(step, 0.1 + 0.001 * static_cast<double>(step % 7));
    made.sequence = sequence;
    made.source = "trajectory";
    return made;
  };
  Verdict expected, last;
  for (int64_t i = 1; i <= 12; ++i) expected = in_order.Add(report(1000 * i, i));
  int64_t sequence = 0;
  for (const int64_t i : {5, 1, 2, 9, 10, 11, 3, 4, 6, 7, 8, 12}) {
    last = shuffled.Add(report(1000 * i, ++sequence));
  }
  EXPECT_EQ(last, expected);
}

TEST(Analyzer, BlamesNoScheduleItDoesNotKnow) {
  Analyzer analyzer;
  const auto report = [](int64_t step, double delta) {
    Report made = At(step, delta);
    made.learning_rate.reset();
    made.lr_phase = LrPhase::kUnknown;
    return made;
  };
  Verdict verdict;
  for (size_t i = 0; i < kStable.size(); ++i) {
    verdict = analyzer.Add(report(800 * static_cast<int64_t>(i + 1), kStable[i]));
  }
  EXPECT_EQ(verdict.state, VerdictState::kHealthy);
  for (int i = 1; i <= 6; ++i) verdict = analyzer.Add(report(12800 + 800 * i, 0.3));
  EXPECT_EQ(verdict.state, VerdictState::kUnclear);
  EXPECT_THAT(verdict.summary, HasSubstr("the learning rate is unknown"));
}

TEST(Analyzer, TakesTheFirstPartOfAScheduleWithoutAPlateau) {
  Analyzer analyzer;
  Verdict verdict;
  Stream stream;
  int first_alarm = 0;
  for (int i = 1; i <= 20; ++i) {
    const double part = i / 20.0;
    const double rate = kRate * 0.5 * (1 + std::cos(M_PI * part));
    Report report = stream.Next(i, std::pow(3.0, part * part), rate);
    report.lr_phase = LrPhase::kSlowDecay;
    verdict = analyzer.Add(report);
    if (IsAlarm(verdict.state) && first_alarm == 0) first_alarm = i;
  }
  EXPECT_EQ(verdict.state, VerdictState::kDecayDegradation);
  EXPECT_GT(first_alarm, 8);
}

TEST(Analyzer, DrawsItsLinesWhereItIsTold) {
  Analyzer deaf({.plateau_sigmas = 50});
  FeedStable(deaf);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_FALSE(IsAlarm(deaf.Add(At(12800 + 800 * i, 0.2)).state));
  }
}

TEST(VerdictOptions, AreValidated) {
  EXPECT_TRUE(Validate(VerdictOptions()).ok());
  EXPECT_THAT(std::string(Validate(VerdictOptions{.decay_sigmas = 0}).message()),
              HasSubstr("VerdictOptions.decay_sigmas = 0: must be more than 0"));
  EXPECT_THAT(std::string(Validate(VerdictOptions{.decay_ratio = 0.9}).message()),
              HasSubstr("decay_ratio = 0.9"));
  EXPECT_FALSE(Validate(VerdictOptions{.floor_nats = std::nan("")}).ok());
}

}  // namespace analyzer_test
}  // namespace ptqwatch::internal
