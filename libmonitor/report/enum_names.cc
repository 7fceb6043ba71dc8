#include "report/enum_names.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "base/strings.h"
#include "ptqwatch/event.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch {
namespace {

// The position is the value. Journals store the names: never change one, add new ones at the end.
constexpr std::string_view kLrPhases[] = {"unknown", "warmup",     "stable",
                                          "decay",   "slow_decay", "rewarm"};
constexpr std::string_view kVerdictStates[] = {
    "unknown",           "warming_up", "healthy",    "drifting",
    "decay_degradation", "spike",      "recovering", "unclear"};
constexpr std::string_view kAdviceActions[] = {"unknown",    "stop_decay",  "average_weights",
                                               "raise_bits", "inspect_run", "use_quantizer"};
constexpr std::string_view kAveragingKinds[] = {"window", "exponential", "merge"};
constexpr std::string_view kProbeStatuses[] = {
    "unknown", "ok", "nonfinite", "failed", "out_of_time", "cancelled", "disabled", "other_rank"};
constexpr std::string_view kSnapshotTriggers[] = {"unknown", "interval", "request", "finish"};
constexpr std::string_view kLayerStatuses[] = {"ok",        "damped",       "too_few_tokens",
                                               "nonfinite", "rtn_fallback", "unsupported"};
constexpr std::string_view kCalibrationModes[] = {"one_shot", "sequential"};
constexpr std::string_view kCurvatureScopes[] = {"quantized_weights", "all_parameters",
                                                 "named_parameters"};
constexpr std::string_view kHessianModes[] = {"auto", "retained_graph", "finite_difference",
                                              "recomputed_graph", "gauss_newton"};
constexpr std::string_view kEigenvalueMethods[] = {"lanczos", "power_iteration"};
constexpr std::string_view kEigenvalueStarts[] = {"cold", "warm", "restarted"};
constexpr std::string_view kOptimizerKinds[] = {"sgd", "adam", "adamw", "muon"};
constexpr std::string_view kSnapshotResultNames[] = {
    "taken",          "skipped_busy",    "skipped_mismatch",   "failed",
    "skipped_paused", "skipped_resting", "skipped_concurrent", "incomplete"};
constexpr std::string_view kHealthNames[] = {"starting", "ok",    "degraded",
                                             "stopped",  "inert", "silent"};
constexpr std::string_view kEventKindNames[] = {
    "snapshot_skipped", "phase_change",  "probe_disabled", "probe_failed",
    "exporter_failed",  "resumed",       "stopped",        "slice",
    "plan_changed",     "inert",         "alert",          "cooldown",
    "misuse",           "server_failed", "worker_failed",  "replicas_diverged"};
constexpr std::string_view kSliceStates[] = {
    "none", "waiting_for_first", "waiting_for_second", "measuring", "done", "failed"};
static_assert(std::size(kSnapshotResultNames) == kSnapshotResults);
static_assert(std::size(kHealthNames) == kHealths);
static_assert(std::size(kEventKindNames) == kEventKinds);
constexpr std::string_view kDecayShapes[] = {"linear", "one_minus_sqrt", "cosine"};
constexpr std::string_view kCooldownStates[] = {"none", "waiting", "simulating", "done", "failed"};
constexpr std::string_view kServerStates[] = {"none", "starting", "serving", "restarting",
                                              "failed"};
constexpr std::string_view kSeverities[] = {"info", "warning", "error"};

// The names of QuantizationMethod.
struct MethodNames {
  std::vector<internal::MethodName> rows{{"rtn", "RTN"},
                                         {"gptq", "GPTQ"},
                                         {"awq", "AWQ"},
                                         {"llm_int8", "LLM.int8"},
                                         {"nf4", "NF4", "nf4"}};
  std::vector<std::string_view> names;

  MethodNames() {
    for (const internal::MethodName& row : rows) names.push_back(row.name);
  }
};
MethodNames& KnownMethods() {
  static auto* known = new MethodNames;
  return *known;
}

internal::MethodName NameOf(QuantizationMethod method) {
  const std::vector<internal::MethodName>& rows = KnownMethods().rows;
  const auto index = static_cast<size_t>(method);
  return index < rows.size() ? rows[index] : internal::MethodName{"unknown", "unknown", "unknown"};
}

// Lower case, without '.', '_' and '-'.
std::string Plain(std::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(std::string(name)),
                             {{".", ""}, {"_", ""}, {"-", ""}});
}

bool SaysBits(std::string_view name) {
  return !name.empty() && absl::ascii_isdigit(static_cast<unsigned char>(name.back()));
}

}  // namespace

namespace internal {

EnumNames NamesOf(LrPhase) { return kLrPhases; }
EnumNames NamesOf(VerdictState) { return kVerdictStates; }
EnumNames NamesOf(AdviceAction) { return kAdviceActions; }
EnumNames NamesOf(AveragingKind) { return kAveragingKinds; }
EnumNames NamesOf(ProbeStatus) { return kProbeStatuses; }
EnumNames NamesOf(SnapshotTrigger) { return kSnapshotTriggers; }
EnumNames NamesOf(QuantizationMethod) { return KnownMethods().names; }
QuantizationMethod AddMethodName(const MethodName& name) {
  KnownMethods().rows.push_back(name);
  KnownMethods().names.push_back(name.name);
  return static_cast<QuantizationMethod>(KnownMethods().rows.size() - 1);
}
EnumNames NamesOf(LayerStatus) { return kLayerStatuses; }
EnumNames NamesOf(CalibrationMode) { return kCalibrationModes; }
EnumNames NamesOf(CurvatureScope) { return kCurvatureScopes; }
EnumNames NamesOf(HessianMode) { return kHessianModes; }
EnumNames NamesOf(EigenvalueMethod) { return kEigenvalueMethods; }
EnumNames NamesOf(EigenvalueStart) { return kEigenvalueStarts; }
EnumNames NamesOf(OptimizerKind) { return kOptimizerKinds; }
EnumNames NamesOf(Event::Kind) { return kEventKindNames; }
EnumNames NamesOf(Severity) { return kSeverities; }
EnumNames NamesOf(Health) { return kHealthNames; }
EnumNames NamesOf(SliceState) { return kSliceStates; }
EnumNames NamesOf(DecayShape) { return kDecayShapes; }
EnumNames NamesOf(CooldownState) { return kCooldownStates; }
EnumNames NamesOf(ServerState) { return kServerStates; }

}  // namespace internal

using internal::EnumName;
using internal::ParseEnum;

std::string_view ToString(LrPhase value) { return EnumName(kLrPhases, value); }
std::string_view ToString(VerdictState value) { return EnumName(kVerdictStates, value); }
std::string_view ToString(AdviceAction value) { return EnumName(kAdviceActions, value); }
std::string_view ToString(AveragingKind value) { return EnumName(kAveragingKinds, value); }
std::string_view ToString(ProbeStatus value) { return EnumName(kProbeStatuses, value); }
std::string_view ToString(SnapshotTrigger value) { return EnumName(kSnapshotTriggers, value); }
std::string_view ToString(QuantizationMethod value) { return NameOf(value).name; }
std::string_view FormatOf(QuantizationMethod value) { return NameOf(value).format; }
std::string_view ToString(LayerStatus value) { return EnumName(kLayerStatuses, value); }
std::string_view ToString(CalibrationMode value) { return EnumName(kCalibrationModes, value); }
std::string_view ToString(CurvatureScope value) { return EnumName(kCurvatureScopes, value); }
std::string_view ToString(HessianMode value) { return EnumName(kHessianModes, value); }
std::string_view ToString(EigenvalueMethod value) { return EnumName(kEigenvalueMethods, value); }
std::string_view ToString(EigenvalueStart value) { return EnumName(kEigenvalueStarts, value); }
std::string_view ToString(OptimizerKind value) { return EnumName(kOptimizerKinds, value); }
std::string_view ToString(SnapshotResult value) { return EnumName(kSnapshotResultNames, value); }
std::string_view ToString(Health value) { return EnumName(kHealthNames, value); }
std::string_view ToString(Event::Kind value) { return EnumName(kEventKindNames, value); }

absl::StatusOr<LrPhase> ParseLrPhase(std::string_view name) {
  return ParseEnum<LrPhase>("learning-rate phase", kLrPhases, name);
}
absl::StatusOr<VerdictState> ParseVerdictState(std::string_view name) {
  return ParseEnum<VerdictState>("verdict state", kVerdictStates, name);
}
absl::StatusOr<AdviceAction> ParseAdviceAction(std::string_view name) {
  return ParseEnum<AdviceAction>("advice", kAdviceActions, name);
}
absl::StatusOr<AveragingKind> ParseAveragingKind(std::string_view name) {
  return ParseEnum<AveragingKind>("kind of average", kAveragingKinds, name);
}
absl::StatusOr<ProbeStatus> ParseProbeStatus(std::string_view name) {
  return ParseEnum<ProbeStatus>("probe status", kProbeStatuses, name);
}
absl::StatusOr<SnapshotTrigger> ParseSnapshotTrigger(std::string_view name) {
  return ParseEnum<SnapshotTrigger>("snapshot trigger", kSnapshotTriggers, name);
}
absl::StatusOr<QuantizationMethod> ParseQuantizationMethod(std::string_view name) {
  const std::vector<std::string_view>& names = KnownMethods().names;
  const auto found = std::find_if(
      names.begin(), names.end(),
      [&, plain = Plain(name)](std::string_view known) { return Plain(known) == plain; });
  if (found == names.end()) return internal::UnknownName("quantization method", names, name);
  return static_cast<QuantizationMethod>(found - names.begin());
}
absl::StatusOr<LayerStatus> ParseLayerStatus(std::string_view name) {
  return ParseEnum<LayerStatus>("layer status", kLayerStatuses, name);
}
absl::StatusOr<CalibrationMode> ParseCalibrationMode(std::string_view name) {
  return ParseEnum<CalibrationMode>("calibration mode", kCalibrationModes, name);
}
absl::StatusOr<CurvatureScope> ParseCurvatureScope(std::string_view name) {
  return ParseEnum<CurvatureScope>("curvature scope", kCurvatureScopes, name);
}
absl::StatusOr<HessianMode> ParseHessianMode(std::string_view name) {
  return ParseEnum<HessianMode>("Hessian mode", kHessianModes, name);
}
absl::StatusOr<EigenvalueMethod> ParseEigenvalueMethod(std::string_view name) {
  return ParseEnum<EigenvalueMethod>("eigenvalue method", kEigenvalueMethods, name);
}
absl::StatusOr<EigenvalueStart> ParseEigenvalueStart(std::string_view name) {
  return ParseEnum<EigenvalueStart>("eigenvalue start", kEigenvalueStarts, name);
}
absl::StatusOr<OptimizerKind> ParseOptimizerKind(std::string_view name) {
  return ParseEnum<OptimizerKind>("optimizer", kOptimizerKinds, name);
}
absl::StatusOr<Event::Kind> ParseEventKind(std::string_view name) {
  return ParseEnum<Event::Kind>("event kind", kEventKindNames, name);
}

std::string_view ToString(SliceState value) { return EnumName(kSliceStates, value); }
std::string_view ToString(CooldownState value) { return EnumName(kCooldownStates, value); }
std::string_view ToString(ServerState value) { return EnumName(kServerStates, value); }
std::string_view ToString(DecayShape value) { return EnumName(kDecayShapes, value); }
absl::StatusOr<DecayShape> ParseDecayShape(std::string_view name) {
  return ParseEnum<DecayShape>("decay shape", kDecayShapes, name);
}
std::string_view ToString(Severity value) { return EnumName(kSeverities, value); }
absl::StatusOr<Severity> ParseSeverity(std::string_view name) {
  return ParseEnum<Severity>("severity", kSeverities, name);
}

std::string ShortName(const QuantizerKey& key) {
  const std::string_view method = ToString(key.method);
  const bool plain = !key.method || key.format == FormatOf(*key.method);
  std::string name(method);
  if (!SaysBits(method) && (plain || key.format.starts_with("int")))
    name += std::to_string(key.bits);
  return plain ? name : internal::StrCat(name, "-", key.format);
}
std::string LabelOf(const QuantizerKey& key) {
  if (!key.method) return internal::StrCat(key.bits, " bits");
  const std::string_view label = NameOf(*key.method).label;
  std::string text =
      SaysBits(label) ? std::string(label) : internal::StrCat(key.bits, "-bit ", label);
  if (key.format != FormatOf(*key.method)) text += internal::StrCat(" (", key.format, ")");
  return text;
}

}  // namespace ptqwatch
