#ifndef PTQWATCH_REPORT_STATUS_FIELDS_H_
#define PTQWATCH_REPORT_STATUS_FIELDS_H_

#include "ptqwatch/status.h"
#include "report/command_fields.h"
#include "report/report_fields.h"

// The only list of the members of RunStatus and its parts, in the manner of report_fields.h. JSON,
// protobuf and the text of `ptqwatch status` follow from it.

namespace ptqwatch::internal {

template <Of<RunInfo> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("run_id", record.run_id);
  visit("attempt", record.attempt);
  visit("fingerprint", record.fingerprint);
  visit("run_dir", record.run_dir);
  visit("parameters", record.parameters);
  visit("covered_parameters", record.covered_parameters);
  visit("device", record.device);
  visit("optimizer", record.optimizer);
}

template <Of<SliceStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("state", record.state);
  visit("number", record.number);
  visit("request", record.request);
  visit("points_done", record.points_done);
  visit("points_all", record.points_all);
  visit("path", record.path);
  visit("error", record.error);
}

template <Of<CooldownStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("state", record.state);
  visit("number", record.number);
  visit("decay_steps", record.decay_steps);
  visit("step", record.step);
  visit("steps_done", record.steps_done);
  visit("steps_all", record.steps_all);
  visit("waits_for_core", record.waits_for_core);
  visit("result", record.result);
  visit("error", record.error);
}

template <Of<ServerStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("state", record.state);
  visit("metrics", record.metrics);
  visit("grpc", record.grpc);
  visit("restarts", record.restarts);
  visit("reason", record.reason);
}

template <Of<DroppedReports> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("exporter", record.exporter);
  visit("reason", record.reason);
  visit("count", record.count);
}

template <Of<RankStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("rank", record.rank);
  visit("health", record.health);
  visit("health_reason", record.health_reason);
  visit("snapshot_step", record.snapshot_step);
  visit("reports_total", record.reports_total);
}

template <Of<ReplicaStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("compared_step", record.compared_step);
  visit("diverged", record.diverged);
  visit("diverged_step", record.diverged_step);
  visit("parameter", record.parameter);
  visit("minority", record.minority);
}

template <Of<MonitorStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("step", record.step);
  visit("steps_total", record.steps_total);
  visit("last_step_unix_seconds", record.last_step_unix_seconds);
  visit("learning_rate", record.learning_rate);
  visit("tokens", record.tokens);
  visit("training_loss_nats", record.training_loss_nats);
  visit("lr_phase", record.lr_phase);
  visit("health", record.health);
  visit("health_reason", record.health_reason);
  visit("busy", record.busy);
  visit("snapshots", record.snapshots);
  visit("reports_total", record.reports_total);
  visit("last_sequence", record.last_sequence);
  visit("probe_failures_total", record.probe_failures_total);
  visit("state_write_failures_total", record.state_write_failures_total);
  visit("stall_buckets", record.stall_buckets);
  visit("stall_seconds_total", record.stall_seconds_total);
  visit("overhead_ratio", record.overhead_ratio);
  visit("overhead_low_ratio", record.overhead_low_ratio);
  visit("overhead_high_ratio", record.overhead_high_ratio);
  visit("overhead_comparisons", record.overhead_comparisons);
  visit("overhead_budget_ratio", record.overhead_budget_ratio);
  visit("plan_level_ratio", record.plan_level_ratio);
  visit("memory_bytes", record.memory_bytes);
  visit("memory_peak_bytes", record.memory_peak_bytes);
  visit("memory_budget_bytes", record.memory_budget_bytes);
  visit("duty_cycle", record.duty_cycle);
  visit("seconds_a_step", record.seconds_a_step);
  visit("every", record.every);
  visit("paused", record.paused);
  visit("events", record.events);
  visit("dropped_reports", record.dropped_reports);
  visit("slice", record.slice);
  visit("cooldown", record.cooldown);
  visit("server", record.server);
  visit("ranks", record.ranks);
  visit("replicas", record.replicas);
}

template <Of<RunStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("process_id", record.process_id);
  visit("host", record.host);
  visit("time_unix_seconds", record.time_unix_seconds);
  visit("name", record.name);
  visit("version", record.version);
  visit("subscribers", record.subscribers);
  visit("run", record.run);
  visit("status", record.monitor);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_STATUS_FIELDS_H_
