#include "status_text.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "event_proto.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"
#include "printable.h"
#include "ptqwatch/status.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxObservations = 10;

int64_t Skipped(const v1::GetStatusResponse& status) {
  int64_t skipped = 0;
  for (const auto& [result, count] : status.snapshots()) {
    if (absl::StartsWith(result, "skipped_")) skipped += count;
  }
  return skipped;
}

std::string_view PhaseText(v1::LrPhase phase) { return ToString(static_cast<LrPhase>(phase)); }

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

std::string_view HealthText(v1::Health health) {
  switch (health) {
    case v1::HEALTH_STARTING:
      return ToString(Health::kStarting);
    case v1::HEALTH_OK:
      return ToString(Health::kOk);
    case v1::HEALTH_DEGRADED:
      return ToString(Health::kDegraded);
    case v1::HEALTH_STOPPED:
      return ToString(Health::kStopped);
    case v1::HEALTH_INERT:
      return ToString(Health::kInert);
    default:
      return "unknown";
  }
}

std::string SliceText(const v1::SliceStatus& slice) {
  const std::string name = ShortName(Printable(slice.method()), slice.bits());
  switch (slice.state()) {
    case v1::SLICE_STATE_WAITING_FOR_FIRST:
      return StrCat(name, ": waiting for the next snapshot");
    case v1::SLICE_STATE_WAITING_FOR_SECOND:
      return StrCat(name, ": one snapshot taken, waiting for the next");
    case v1::SLICE_STATE_MEASURING:
      return StrCat(name, ": ", slice.points_done(), " of ", slice.points_all(),
                    " points measured");
    case v1::SLICE_STATE_DONE:
      return StrCat(name, ": written to ", Printable(slice.path()));
    case v1::SLICE_STATE_FAILED:
      return StrCat(name, ": failed: ", Printable(slice.error()));
    default:
      return StrCat(name, ": unknown state");
  }
}

std::string CooldownText(const v1::CooldownStatus& cooldown) {
  std::string name = StrCat(cooldown.number());
  if (cooldown.step() > 0) name += StrCat(" from step ", cooldown.step());
  switch (cooldown.state()) {
    case v1::COOLDOWN_STATE_WAITING:
      return StrCat(name, ": waiting for the next snapshot");
    case v1::COOLDOWN_STATE_SIMULATING:
      return StrCat(name, ": ", cooldown.steps_done(), " of ", cooldown.steps_all(),
                    " steps simulated",
                    cooldown.waits_for_core() ? ", waiting for a spare core" : "");
    case v1::COOLDOWN_STATE_DONE:
      return StrCat(cooldown.number(), ": ", Printable(cooldown.result()));
    case v1::COOLDOWN_STATE_FAILED:
      return StrCat(name, ": failed: ", Printable(cooldown.error()));
    default:
      return StrCat(name, ": unknown state");
  }
}

std::string OverheadText(const v1::GetStatusResponse& status) {
  if (!status.has_overhead_ratio()) return "";
  const auto percent = [](double ratio) { return NumberText(100 * ratio, 2); };
  std::string text;
  if (status.has_overhead_low_ratio() && status.has_overhead_high_ratio()) {
    text = StrCat(percent(status.overhead_ratio()), "% (", percent(status.overhead_low_ratio()),
                  " to ", percent(status.overhead_high_ratio()), "%, 95%)");
  } else {
    text = StrCat("not measured yet (", status.overhead_comparisons(),
                  status.overhead_comparisons() == 1 ? " comparison)" : " comparisons)");
  }
  if (status.overhead_budget_ratio() > 0) {
    text += StrCat(" of ", percent(status.overhead_budget_ratio()), "% allowed");
  }
  return text;
}

std::string EventText(const v1::Event& event) {
  return StrCat("-- step ", event.step(), ", ", SeverityText(event.severity()), ", ",
                EventKindText(event.kind()), ": ", Printable(event.message()));
}

std::string StatusLine(const v1::GetStatusResponse& status, std::optional<double> steps_per_second,
                       std::optional<double> report_age_seconds) {
  std::vector<std::string> parts;
  parts.push_back(status.has_step() ? StrCat("step ", status.step()) : "no step yet");
  if (steps_per_second.has_value()) {
    parts.push_back(StrCat(NumberText(*steps_per_second, 3), " steps/s"));
  }
  if (status.last_sequence() == 0) {
    parts.push_back("no report yet");
  } else if (report_age_seconds.has_value()) {
    parts.push_back(StrCat("newest report ", AgeText(*report_age_seconds), " old"));
  }
  parts.push_back(std::string(HealthText(status.health())));
  if (status.slice().state() == v1::SLICE_STATE_MEASURING) {
    parts.push_back(StrCat("slice ", SliceText(status.slice())));
  } else if (status.busy()) {
    parts.push_back("busy");
  } else if (status.cooldown().state() == v1::COOLDOWN_STATE_SIMULATING) {
    parts.push_back(StrCat("cooldown ", CooldownText(status.cooldown())));
  }
  if (status.paused()) parts.push_back("paused");
  if (const int64_t skipped = Skipped(status); skipped > 0) {
    parts.push_back(StrCat(skipped, " skipped"));
  }
  return absl::StrJoin(parts, " | ");
}

std::string StatusBlock(const v1::GetStatusResponse& status, double now_unix_seconds) {
  std::string text;
  text += FieldLine(
      "run", StrCat(Printable(status.run_id()), ", attempt ", status.attempt(), ", ptqwatch ",
                    Printable(status.version()), " on ", Printable(status.device())));
  std::string health(HealthText(status.health()));
  if (!status.health_reason().empty()) health += StrCat(": ", Printable(status.health_reason()));
  if (status.busy()) health += ", a snapshot is being measured";
  text += FieldLine("health", health);
  if (status.has_step()) {
    text += FieldLine("step", StrCat(status.step(), ", ",
                                     AgoText(now_unix_seconds - status.last_step_unix_seconds())));
    const std::string rate =
        status.has_learning_rate() ? ScientificText(status.learning_rate(), 2) : "-";
    text += FieldLine("lr", StrCat(rate, ", ", PhaseText(status.lr_phase())));
  } else {
    text += FieldLine("step", "none yet");
  }
  if (status.has_training_loss_nats() || status.has_tokens()) {
    std::vector<std::string> parts;
    if (status.has_training_loss_nats()) {
      parts.push_back(StrCat("loss ", NumberText(status.training_loss_nats(), 5), " nats"));
    }
    if (status.has_tokens()) parts.push_back(StrCat(status.tokens(), " tokens"));
    text += FieldLine("training", absl::StrJoin(parts, ", "));
  }
  std::string covered = StrCat(status.parameters(), " parameters");
  if (status.parameters() > 0) {
    covered += StrFormat(", %.1f%% in quantized layers",
                         100.0 * static_cast<double>(status.covered_parameters()) /
                             static_cast<double>(status.parameters()));
  }
  text += FieldLine("model", covered);
  const std::map<std::string, int64_t> snapshots(status.snapshots().begin(),
                                                 status.snapshots().end());
  std::vector<std::string> counts;
  for (const auto& [result, count] : snapshots) {
    if (count > 0) counts.push_back(StrCat(count, " ", Printable(result)));
  }
  std::string taken = counts.empty() ? "none yet" : absl::StrJoin(counts, ", ");
  if (status.every_steps() > 0) taken += StrCat("; one every ", status.every_steps(), " steps");
  if (status.paused()) taken += "; paused";
  text += FieldLine("snapshots", taken);
  text += FieldLine("reports", StrCat(status.reports_total(), ", the newest has sequence ",
                                      status.last_sequence(), "; ", status.probe_failures_total(),
                                      " failed measurements, ", status.dropped_reports(),
                                      " dropped by exporters"));
  std::string cost = StrCat(NumberText(status.stall_seconds_total(), 3), " s of training time");
  if (const std::string overhead = OverheadText(status); !overhead.empty()) {
    cost += StrCat(", overhead ", overhead);
  }
  cost += StrFormat(", duty cycle %.0f%%", 100 * status.duty_cycle());
  text += FieldLine("cost", cost);
  if (status.memory_budget_bytes() > 0) {
    text +=
        FieldLine("memory", StrFormat("%.0f MB, %.0f MB at most, of %.0f MB",
                                      1e-6 * static_cast<double>(status.memory_bytes()),
                                      1e-6 * static_cast<double>(status.memory_peak_bytes()),
                                      1e-6 * static_cast<double>(status.memory_budget_bytes())));
  }
  if (status.has_cooldown()) text += FieldLine("cooldown", CooldownText(status.cooldown()));
  if (status.has_slice()) text += FieldLine("slice", SliceText(status.slice()));
  text += FieldLine("watchers", StrCat(status.subscribers()));
  return text;
}

absl::StatusOr<std::string> StatusJson(const v1::GetStatusResponse& status) {
  using google::protobuf::FieldDescriptor;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(status, &text, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  // Protobuf writes 64-bit integers as JSON strings.
  nlohmann::json json = nlohmann::json::parse(text);
  const auto* type = v1::GetStatusResponse::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const auto found = json.find(field->name());
    if (found == json.end()) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      *found = std::stoll(found->get<std::string>());
    }
  }
  for (const auto& [result, count] : status.snapshots()) json["snapshots"][result] = count;
  return json.dump(-1, ' ', /*ensure_ascii=*/true);
}

}  // namespace ptqwatch::internal
