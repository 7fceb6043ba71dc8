#include "status_text.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "printable.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxObservations = 10;

// Members that StatusBlock puts into words.
constexpr std::string_view kInWords =
    " run_id attempt device version parameters covered_parameters optimizer "
    "subscribers step "
    "last_step_unix_seconds learning_rate tokens training_loss_nats lr_phase health health_reason "
    "busy snapshots reports_total last_sequence probe_failures_total stall_seconds_total "
    "overhead_ratio overhead_low_ratio overhead_high_ratio overhead_budget_ratio memory_bytes "
    "memory_peak_bytes memory_budget_bytes "
    "duty_cycle every paused slice.state slice.request.method slice.request.bits "
    "slice.request.format slice.points_done slice.points_all slice.path slice.error cooldown.state "
    "cooldown.number cooldown.step "
    "cooldown.steps_done cooldown.steps_all cooldown.waits_for_core cooldown.result "
    "cooldown.error replicas.compared_step replicas.diverged replicas.diverged_step "
    "replicas.parameter replicas.minority ";

int64_t Skipped(const MonitorStatus& status) {
  int64_t skipped = 0;
  for (int i = 0; i < kSnapshotResults; ++i) {
    const std::string_view name = ToString(static_cast<SnapshotResult>(i));
    if (name.starts_with("skipped_")) skipped += status.snapshots[static_cast<size_t>(i)];
  }
  return skipped;
}

std::string RunText(const RunStatus& status) {
  return StrCat(Printable(status.run.run_id), ", attempt ", status.run.attempt, ", ptqwatch ",
                Printable(status.version), " on ", Printable(status.run.device));
}

std::string HealthText(const MonitorStatus& status) {
  std::string text(ToString(status.health));
  if (!status.health_reason.empty()) text += StrCat(": ", Printable(status.health_reason));
  if (status.busy) text += ", a snapshot is being measured";
  return text;
}

std::string TrainingText(const MonitorStatus& status) {
  std::vector<std::string> parts;
  if (status.training_loss_nats) {
    parts.push_back(StrCat("loss ", NumberText(*status.training_loss_nats, 5), " nats"));
  }
  if (status.tokens) parts.push_back(StrCat(*status.tokens, " tokens"));
  return absl::StrJoin(parts, ", ");
}

std::string ModelText(const RunInfo& run) {
  std::string text = StrCat(run.parameters, " parameters");
  if (run.parameters > 0) {
    text += StrFormat(
        ", %.1f%% in quantized layers",
        100.0 * static_cast<double>(run.covered_parameters) / static_cast<double>(run.parameters));
  }
  if (run.optimizer) text += StrCat(", trained by ", ToString(*run.optimizer));
  return text;
}

std::string SnapshotsText(const MonitorStatus& status) {
  std::vector<std::string> counts;
  for (int i = 0; i < kSnapshotResults; ++i) {
    const int64_t count = status.snapshots[static_cast<size_t>(i)];
    if (count > 0) counts.push_back(StrCat(count, " ", ToString(static_cast<SnapshotResult>(i))));
  }
  std::string text = counts.empty() ? "none yet" : absl::StrJoin(counts, ", ");
  if (status.every > 0) text += StrCat("; one every ", status.every, " steps");
  if (status.paused) text += "; paused";
  return text;
}

std::string ReportsText(const MonitorStatus& status) {
  int64_t dropped = 0;
  for (const DroppedReports& drop : status.dropped_reports) dropped += drop.count;
  return StrCat(status.reports_total, ", the newest has sequence ", status.last_sequence, "; ",
                status.probe_failures_total, " failed measurements, ", dropped,
                " dropped by exporters");
}

std::string CostText(const MonitorStatus& status) {
  std::string text = StrCat(NumberText(status.stall_seconds_total, 3), " s of training time");
  if (const std::string overhead = OverheadText(status); !overhead.empty()) {
    text += StrCat(", overhead ", overhead);
  }
  return text + StrFormat(", duty cycle %.0f%%", 100 * status.duty_cycle);
}

std::string OtherMembers(const RunStatus& status) {
  const std::vector<StatusMember> defaults = MembersOf(RunStatus());
  const std::vector<StatusMember> members = MembersOf(status);
  std::string text;
  for (size_t i = 0; i < members.size(); ++i) {
    const bool in_words =
        kInWords.find(StrCat(" ", members[i].name, " ")) != std::string_view::npos;
    if (!in_words && members[i].text != defaults[i].text) {
      text += FieldLine(members[i].name, members[i].text);
    }
  }
  return text;
}

}  // namespace

void StepRate::Add(std::chrono::nanoseconds now, int64_t steps_total) {
  if (!observations_.empty() && steps_total < observations_.back().steps) observations_.clear();
  observations_.push_back({now, steps_total});
  if (observations_.size() > kMaxObservations) observations_.pop_front();
}

std::optional<double> StepRate::PerSecond() const {
  if (observations_.size() < 2) return std::nullopt;
  const Observation &first = observations_.front(), &last = observations_.back();
  const std::chrono::duration<double> elapsed = last.time - first.time;
  if (elapsed.count() <= 0) return std::nullopt;
  return static_cast<double>(last.steps - first.steps) / elapsed.count();
}

std::string SliceText(const SliceStatus& slice) {
  const std::string name = ShortName(KeyOf(slice.request));
  switch (slice.state) {
    case SliceState::kWaitingForFirst:
      return StrCat(name, ": waiting for the next snapshot");
    case SliceState::kWaitingForSecond:
      return StrCat(name, ": one snapshot taken, waiting for the next");
    case SliceState::kMeasuring:
      return StrCat(name, ": ", slice.points_done, " of ", slice.points_all, " points measured");
    case SliceState::kDone:
      return StrCat(name, ": written to ", Printable(slice.path));
    case SliceState::kFailed:
      return StrCat(name, ": failed: ", Printable(slice.error));
    case SliceState::kNone:
      break;
  }
  return StrCat(name, ": unknown state");
}

std::string CooldownText(const CooldownStatus& cooldown) {
  std::string name = StrCat(cooldown.number);
  if (cooldown.step > 0) name += StrCat(" from step ", cooldown.step);
  switch (cooldown.state) {
    case CooldownState::kWaiting:
      return StrCat(name, ": waiting for the next snapshot");
    case CooldownState::kSimulating:
      return StrCat(name, ": ", cooldown.steps_done, " of ", cooldown.steps_all, " steps simulated",
                    cooldown.waits_for_core ? ", waiting for a spare core" : "");
    case CooldownState::kDone:
      return StrCat(cooldown.number, ": ", Printable(cooldown.result));
    case CooldownState::kFailed:
      return StrCat(name, ": failed: ", Printable(cooldown.error));
    case CooldownState::kNone:
      break;
  }
  return StrCat(name, ": unknown state");
}

std::string OverheadText(const MonitorStatus& status) {
  if (!status.overhead_ratio) return "";
  const auto percent = [](double ratio) { return NumberText(100 * ratio, 2); };
  std::string text;
  if (status.overhead_low_ratio && status.overhead_high_ratio) {
    text = StrCat(percent(*status.overhead_ratio), "% (", percent(*status.overhead_low_ratio),
                  " to ", percent(*status.overhead_high_ratio), "%, 95%)");
  } else {
    text = StrCat("not measured yet (", status.overhead_comparisons,
                  status.overhead_comparisons == 1 ? " comparison)" : " comparisons)");
  }
  if (status.overhead_budget_ratio > 0) {
    text += StrCat(" of ", percent(status.overhead_budget_ratio), "% allowed");
  }
  return text;
}

std::string ReplicasText(const ReplicaStatus& replicas) {
  if (replicas.compared_step == 0) return "";
  if (!replicas.diverged) return StrCat("equal at step ", replicas.compared_step);
  std::string text = StrCat("differ since step ", replicas.diverged_step,
                            ", last compared at step ", replicas.compared_step);
  text += replicas.minority.empty()
              ? ", without a majority"
              : StrCat(", rank ", Printable(replicas.minority), " unlike most");
  if (!replicas.parameter.empty()) {
    text += StrCat(", first in '", Printable(replicas.parameter), "'");
  }
  return text;
}

std::string EventText(const Event& event) {
  return StrCat("-- step ", event.step, ", ", ToString(event.severity), ", ", ToString(event.kind),
                ": ", Printable(event.message));
}

std::string StatusLine(const MonitorStatus& status, std::optional<double> steps_per_second,
                       std::optional<double> report_age_seconds) {
  std::vector<std::string> parts;
  parts.push_back(status.step ? StrCat("step ", *status.step) : "no step yet");
  if (steps_per_second.has_value()) {
    parts.push_back(StrCat(NumberText(*steps_per_second, 3), " steps/s"));
  }
  if (status.last_sequence == 0) {
    parts.push_back("no report yet");
  } else if (report_age_seconds.has_value()) {
    parts.push_back(StrCat("newest report ", AgeText(*report_age_seconds), " old"));
  }
  parts.push_back(std::string(ToString(status.health)));
  if (status.replicas.diverged) parts.push_back("replicas differ");
  if (status.slice.state == SliceState::kMeasuring) {
    parts.push_back(StrCat("slice ", SliceText(status.slice)));
  } else if (status.busy) {
    parts.push_back("busy");
  } else if (status.cooldown.state == CooldownState::kSimulating) {
    parts.push_back(StrCat("cooldown ", CooldownText(status.cooldown)));
  }
  if (status.paused) parts.push_back("paused");
  if (const int64_t skipped = Skipped(status); skipped > 0) {
    parts.push_back(StrCat(skipped, " skipped"));
  }
  return absl::StrJoin(parts, " | ");
}

std::string StatusBlock(const RunStatus& run, double now_unix_seconds) {
  const MonitorStatus& status = run.monitor;
  std::string text = FieldLine("run", RunText(run)) + FieldLine("health", HealthText(status));
  if (status.step) {
    text += FieldLine("step", StrCat(*status.step, ", ",
                                     AgoText(now_unix_seconds - status.last_step_unix_seconds)));
    text +=
        FieldLine("lr", StrCat(RateText(status.learning_rate), ", ", ToString(status.lr_phase)));
  } else {
    text += FieldLine("step", "none yet");
  }
  if (const std::string training = TrainingText(status); !training.empty()) {
    text += FieldLine("training", training);
  }
  text += FieldLine("model", ModelText(run.run)) + FieldLine("snapshots", SnapshotsText(status)) +
          FieldLine("reports", ReportsText(status)) + FieldLine("cost", CostText(status));
  if (status.memory_budget_bytes > 0) {
    text += FieldLine("memory", StrFormat("%.0f MB, %.0f MB at most, of %.0f MB",
                                          1e-6 * static_cast<double>(status.memory_bytes),
                                          1e-6 * static_cast<double>(status.memory_peak_bytes),
                                          1e-6 * static_cast<double>(status.memory_budget_bytes)));
  }
  if (status.cooldown.state != CooldownState::kNone) {
    text += FieldLine("cooldown", CooldownText(status.cooldown));
  }
  if (status.slice.state != SliceState::kNone) {
    text += FieldLine("slice", SliceText(status.slice));
  }
  if (const std::string replicas = ReplicasText(status.replicas); !replicas.empty()) {
    text += FieldLine("replicas", replicas);
  }
  return text + FieldLine("watchers", StrCat(run.subscribers)) + OtherMembers(run);
}

}  // namespace ptqwatch::internal
