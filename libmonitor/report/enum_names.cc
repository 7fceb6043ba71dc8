#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "ptqwatch/exporter.h"
#include "ptqwatch/report.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch {
namespace {

// Position is value: journals carry the names, so a name is never changed and new ones go to the
// end.
constexpr std::array<std::string_view, 6> kLrPhaseNames = {"unknown", "warmup",     "stable",
                                                           "decay",   "slow_decay", "rewarm"};
constexpr std::array<std::string_view, 5> kVerdictStateNames = {"unknown", "collecting", "healthy",
                                                                "degrading", "degraded"};
constexpr std::array<std::string_view, 7> kProbeStatusNames = {
    "unknown", "ok", "nonfinite", "failed", "out_of_time", "cancelled", "disabled"};
constexpr std::array<std::string_view, 4> kSnapshotTriggerNames = {"unknown", "interval", "request",
                                                                   "finish"};
constexpr std::array<std::string_view, kSnapshotResults> kSnapshotResultNames = {
    "taken", "skipped_busy", "skipped_mismatch", "failed", "skipped_paused"};
constexpr std::array<std::string_view, 4> kHealthNames = {"starting", "ok", "degraded", "stopped"};
constexpr std::array<std::string_view, 8> kEventKindNames = {
    "snapshot_skipped", "phase_change", "probe_disabled", "probe_failed",
    "exporter_failed",  "resumed",      "stopped",        "slice"};

template <typename Enum, size_t N>
std::string_view NameOf(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "unknown";
}

template <typename Enum, size_t N>
std::optional<Enum> ValueOf(const std::array<std::string_view, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view ToString(LrPhase phase) { return NameOf(kLrPhaseNames, phase); }
std::string_view ToString(VerdictState state) { return NameOf(kVerdictStateNames, state); }
std::string ShortName(std::string_view method, int bits) {
  std::string name(method);
  if (name.empty() || name.back() < '0' || name.back() > '9') name += std::to_string(bits);
  return name;
}

std::string_view ToString(ProbeStatus status) { return NameOf(kProbeStatusNames, status); }
std::string_view ToString(SnapshotTrigger trigger) {
  return NameOf(kSnapshotTriggerNames, trigger);
}
std::string_view ToString(SnapshotResult result) { return NameOf(kSnapshotResultNames, result); }
std::string_view ToString(Health health) { return NameOf(kHealthNames, health); }
std::string_view ToString(Event::Kind kind) { return NameOf(kEventKindNames, kind); }

std::optional<LrPhase> ParseLrPhase(std::string_view name) {
  return ValueOf<LrPhase>(kLrPhaseNames, name);
}
std::optional<VerdictState> ParseVerdictState(std::string_view name) {
  return ValueOf<VerdictState>(kVerdictStateNames, name);
}
std::optional<ProbeStatus> ParseProbeStatus(std::string_view name) {
  return ValueOf<ProbeStatus>(kProbeStatusNames, name);
}
std::optional<SnapshotTrigger> ParseSnapshotTrigger(std::string_view name) {
  return ValueOf<SnapshotTrigger>(kSnapshotTriggerNames, name);
}

}  // namespace ptqwatch
