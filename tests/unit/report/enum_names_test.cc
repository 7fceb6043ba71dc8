#include <set>
#include <string>
#include <string_view>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/report.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch {
namespace enum_names_test {

using internal::StrCat;
using ::testing::HasSubstr;

template <typename Enum, typename Parse>
void ExpectRoundTrip(Enum last, Parse parse) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto value = static_cast<Enum>(i);
    EXPECT_TRUE(names.insert(ToString(value)).second) << ToString(value);
    EXPECT_EQ(*parse(ToString(value)), value);
  }
  for (const std::string_view name : {"no such name", "", "unknown "}) {
    const absl::Status status = parse(name).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name;
    EXPECT_THAT(status.ToString(), HasSubstr(StrCat(" '", name, "'; known are ")));
    for (const std::string_view known : names) {
      EXPECT_THAT(status.ToString(), HasSubstr(std::string(known)));
    }
  }
  EXPECT_EQ(ToString(static_cast<Enum>(1000)), "unknown");
  EXPECT_EQ(ToString(static_cast<Enum>(-1)), "unknown");
}

TEST(EnumNames, ParseWhatTheyWrite) {
  ExpectRoundTrip(LrPhase::kRewarm, ParseLrPhase);
  ExpectRoundTrip(VerdictState::kUnclear, ParseVerdictState);
  ExpectRoundTrip(AdviceAction::kUseQuantizer, ParseAdviceAction);
  ExpectRoundTrip(AveragingKind::kExponential, ParseAveragingKind);
  ExpectRoundTrip(ProbeStatus::kDisabled, ParseProbeStatus);
  ExpectRoundTrip(SnapshotTrigger::kFinish, ParseSnapshotTrigger);
  ExpectRoundTrip(QuantizationMethod::kNf4, ParseQuantizationMethod);
  ExpectRoundTrip(LayerStatus::kUnsupported, ParseLayerStatus);
  ExpectRoundTrip(CalibrationMode::kSequential, ParseCalibrationMode);
  ExpectRoundTrip(CurvatureScope::kNamedParameters, ParseCurvatureScope);
  ExpectRoundTrip(HessianMode::kGaussNewton, ParseHessianMode);
  ExpectRoundTrip(EigenvalueMethod::kPowerIteration, ParseEigenvalueMethod);
  ExpectRoundTrip(EigenvalueStart::kRestarted, ParseEigenvalueStart);
  ExpectRoundTrip(OptimizerKind::kMuon, ParseOptimizerKind);
}

// Journals and dashboards rely on these.
TEST(EnumNames, AreThoseOfTheContract) {
  EXPECT_EQ(ToString(LrPhase::kSlowDecay), "slow_decay");
  EXPECT_EQ(ToString(LrPhase::kRewarm), "rewarm");
  EXPECT_EQ(ToString(VerdictState::kWarmingUp), "warming_up");
  EXPECT_EQ(ToString(VerdictState::kDecayDegradation), "decay_degradation");
  EXPECT_EQ(ToString(VerdictState::kUnclear), "unclear");
  EXPECT_EQ(ToString(AdviceAction::kStopDecay), "stop_decay");
  EXPECT_EQ(ToString(AveragingKind::kWindow), "window");
  EXPECT_EQ(ToString(AveragingKind::kMerge), "merge");
  EXPECT_EQ(ToString(Event::Kind::kAlert), "alert");
  EXPECT_EQ(ToString(Event::Kind::kCooldown), "cooldown");
  EXPECT_EQ(ToString(Event::Kind::kMisuse), "misuse");
  EXPECT_EQ(ToString(ProbeStatus::kNonFinite), "nonfinite");
  EXPECT_EQ(ToString(ProbeStatus::kOutOfTime), "out_of_time");
  EXPECT_EQ(ToString(ProbeStatus::kDisabled), "disabled");
  EXPECT_EQ(ToString(SnapshotTrigger::kInterval), "interval");
  EXPECT_EQ(ToString(QuantizationMethod::kLlmInt8), "llm_int8");
  EXPECT_EQ(ToString(LayerStatus::kTooFewTokens), "too_few_tokens");
  EXPECT_EQ(ToString(CalibrationMode::kOneShot), "one_shot");
  EXPECT_EQ(ToString(CurvatureScope::kQuantizedWeights), "quantized_weights");
  EXPECT_EQ(ToString(HessianMode::kFiniteDifference), "finite_difference");
  EXPECT_EQ(ToString(HessianMode::kRecomputedGraph), "recomputed_graph");
  EXPECT_EQ(ToString(EigenvalueMethod::kLanczos), "lanczos");
  EXPECT_EQ(ToString(EigenvalueStart::kWarm), "warm");
  EXPECT_EQ(ToString(OptimizerKind::kSgd), "sgd");
  EXPECT_EQ(ToString(SnapshotResult::kTaken), "taken");
  EXPECT_EQ(ToString(SnapshotResult::kSkippedBusy), "skipped_busy");
  EXPECT_EQ(ToString(SnapshotResult::kSkippedMismatch), "skipped_mismatch");
  EXPECT_EQ(ToString(SnapshotResult::kFailed), "failed");
  EXPECT_EQ(ToString(SnapshotResult::kSkippedPaused), "skipped_paused");
  EXPECT_EQ(ToString(Health::kStarting), "starting");
  EXPECT_EQ(ToString(Health::kStopped), "stopped");
  EXPECT_EQ(ToString(Severity::kInfo), "info");
  EXPECT_EQ(ToString(Severity::kError), "error");
  EXPECT_EQ(ToString(Event::Kind::kSnapshotSkipped), "snapshot_skipped");
  EXPECT_EQ(ToString(Event::Kind::kPhaseChange), "phase_change");
  EXPECT_EQ(ToString(Event::Kind::kProbeDisabled), "probe_disabled");
  EXPECT_EQ(ToString(Event::Kind::kProbeFailed), "probe_failed");
  EXPECT_EQ(ToString(Event::Kind::kExporterFailed), "exporter_failed");
  EXPECT_EQ(ToString(Event::Kind::kResumed), "resumed");
  EXPECT_EQ(ToString(Event::Kind::kStopped), "stopped");
  EXPECT_EQ(ToString(Event::Kind::kSlice), "slice");
}

TEST(ShortName, AddsTheBitsIfTheNameHasNone) {
  EXPECT_EQ(ShortName({QuantizationMethod::kGptq, 3, "int"}), "gptq3");
  EXPECT_EQ(ShortName({QuantizationMethod::kNf4, 4, "nf4"}), "nf4");
  EXPECT_EQ(ShortName({QuantizationMethod::kLlmInt8, 8, "int"}), "llm_int8");
  EXPECT_EQ(ShortName({std::nullopt, 4, ""}), "4");
}

TEST(ShortName, NamesAFormatThatTheMethodDoesNotImply) {
  EXPECT_EQ(ShortName({QuantizationMethod::kGptq, 4, "nvfp4"}), "gptq-nvfp4");
  EXPECT_EQ(ShortName({QuantizationMethod::kRtn, 8, "fp8_e4m3"}), "rtn-fp8_e4m3");
  EXPECT_EQ(ShortName({QuantizationMethod::kGptq, 4, "mxfp4-h32"}), "gptq-mxfp4-h32");
  EXPECT_EQ(ShortName({QuantizationMethod::kRtn, 4, "int-h64"}), "rtn4-int-h64");
}

TEST(QuantizerKey, OfARecordWithoutFormatIsThatOfItsMethod) {
  QuantizationReport old;
  old.method = QuantizationMethod::kRtn;
  old.bits = 4;
  EXPECT_EQ(KeyOf(old).format, "int");
  QuantizationReport named = old;
  named.format = "int";
  EXPECT_TRUE(SameQuantizer(old, named));
  named.format = "mxfp4";
  EXPECT_FALSE(SameQuantizer(old, named));
  old.method = QuantizationMethod::kNf4;
  EXPECT_EQ(KeyOf(old).format, "nf4");
}

TEST(LabelOf, IsTheNameInSentences) {
  EXPECT_EQ(LabelOf({QuantizationMethod::kGptq, 3, "int"}), "3-bit GPTQ");
  EXPECT_EQ(LabelOf({QuantizationMethod::kGptq, 4, "nvfp4"}), "4-bit GPTQ (nvfp4)");
  EXPECT_EQ(LabelOf({QuantizationMethod::kAwq, 4, "int"}), "4-bit AWQ");
  EXPECT_EQ(LabelOf({QuantizationMethod::kLlmInt8, 8, "int"}), "LLM.int8");
  EXPECT_EQ(LabelOf({QuantizationMethod::kNf4, 4, "nf4"}), "NF4");
  EXPECT_EQ(LabelOf({std::nullopt, 3, ""}), "3 bits");
}

TEST(FormatOf, IsTheFormatIfAReportNamesNone) {
  EXPECT_EQ(FormatOf(QuantizationMethod::kRtn), "int");
  EXPECT_EQ(FormatOf(QuantizationMethod::kLlmInt8), "int");
  EXPECT_EQ(FormatOf(QuantizationMethod::kNf4), "nf4");
  EXPECT_EQ(FormatOf(static_cast<QuantizationMethod>(99)), "unknown");
}

TEST(EnumNames, OfNothingIsEmpty) {
  EXPECT_EQ(ToString(std::optional<HessianMode>()), "");
  EXPECT_EQ(ToString(std::optional<HessianMode>(HessianMode::kAuto)), "auto");
}

}  // namespace enum_names_test
}  // namespace ptqwatch
