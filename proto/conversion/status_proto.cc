#include "status_proto.h"

#include <cmath>
#include <string>

#include "base/utf8.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {
namespace {

v1::Health ToProto(Health health) {
  switch (health) {
    case Health::kStarting:
      return v1::HEALTH_STARTING;
    case Health::kOk:
      return v1::HEALTH_OK;
    case Health::kDegraded:
      return v1::HEALTH_DEGRADED;
    case Health::kStopped:
      return v1::HEALTH_STOPPED;
    case Health::kInert:
      return v1::HEALTH_INERT;
  }
  return v1::HEALTH_UNSPECIFIED;
}

void Fill(const RunInfo& run, v1::GetStatusResponse* response) {
  response->set_run_id(ValidUtf8(run.run_id));
  response->set_attempt(run.attempt);
  response->set_fingerprint(ValidUtf8(run.fingerprint));
  response->set_version(PTQWATCH_VERSION_STRING);
  response->set_device(ValidUtf8(run.device));
  response->set_parameters(run.parameters);
  response->set_covered_parameters(run.covered_parameters);
}

void Fill(const SliceStatus& slice, v1::SliceStatus* response) {
  response->set_state(static_cast<v1::SliceState>(slice.state));
  response->set_number(static_cast<int32_t>(slice.number));
  if (slice.state != SliceState::kNone) {
    response->set_method(std::string(ToString(slice.request.method)));
  }
  response->set_bits(slice.request.bits);
  response->set_points(slice.request.points);
  response->set_points_done(static_cast<int32_t>(slice.points_done));
  response->set_points_all(static_cast<int32_t>(slice.points_all));
  response->set_path(ValidUtf8(slice.path));
  response->set_error(ValidUtf8(slice.error));
}

void Fill(const CooldownStatus& cooldown, v1::CooldownStatus* response) {
  response->set_state(static_cast<v1::CooldownState>(cooldown.state));
  response->set_number(static_cast<int32_t>(cooldown.number));
  response->set_decay_steps(cooldown.decay_steps);
  response->set_step(cooldown.step);
  response->set_steps_done(cooldown.steps_done);
  response->set_steps_all(cooldown.steps_all);
  response->set_waits_for_core(cooldown.waits_for_core);
  response->set_result(ValidUtf8(cooldown.result));
  response->set_error(ValidUtf8(cooldown.error));
}

void Fill(const MonitorStatus& status, v1::GetStatusResponse* response) {
  response->set_health(ToProto(status.health));
  response->set_health_reason(ValidUtf8(status.health_reason));
  response->set_busy(status.busy);
  if (status.step) response->set_step(*status.step);
  response->set_steps_total(status.steps_total);
  response->set_last_step_unix_seconds(status.last_step_unix_seconds);
  if (std::isfinite(status.learning_rate)) response->set_learning_rate(status.learning_rate);
  if (status.tokens) response->set_tokens(*status.tokens);
  if (status.training_loss_nats && std::isfinite(*status.training_loss_nats)) {
    response->set_training_loss_nats(*status.training_loss_nats);
  }
  response->set_lr_phase(static_cast<v1::LrPhase>(status.lr_phase));
  for (int i = 0; i < kSnapshotResults; ++i) {
    const std::string name(ToString(static_cast<SnapshotResult>(i)));
    (*response->mutable_snapshots())[name] = status.snapshots[static_cast<size_t>(i)];
  }
  response->set_reports_total(status.reports_total);
  response->set_probe_failures_total(status.probe_failures_total);
  if (status.overhead_ratio) response->set_overhead_ratio(*status.overhead_ratio);
  if (status.overhead_low_ratio) response->set_overhead_low_ratio(*status.overhead_low_ratio);
  if (status.overhead_high_ratio) response->set_overhead_high_ratio(*status.overhead_high_ratio);
  response->set_overhead_comparisons(status.overhead_comparisons);
  response->set_stall_seconds_total(status.stall_seconds_total);
  response->set_duty_cycle(status.duty_cycle);
  response->set_overhead_budget_ratio(status.overhead_budget_ratio);
  response->set_plan_level_ratio(status.plan_level_ratio);
  response->set_memory_bytes(status.memory_bytes);
  response->set_memory_peak_bytes(status.memory_peak_bytes);
  response->set_memory_budget_bytes(status.memory_budget_bytes);
  int64_t dropped = 0;
  for (const auto& [exporter_and_reason, count] : status.dropped_reports) dropped += count;
  response->set_dropped_reports(dropped);
  response->set_paused(status.paused);
  response->set_every_steps(status.every);
  if (status.slice.state != SliceState::kNone) Fill(status.slice, response->mutable_slice());
  if (status.cooldown.state != CooldownState::kNone) {
    Fill(status.cooldown, response->mutable_cooldown());
  }
}

Health FromProto(v1::Health health) {
  switch (health) {
    case v1::HEALTH_OK:
      return Health::kOk;
    case v1::HEALTH_DEGRADED:
      return Health::kDegraded;
    case v1::HEALTH_STOPPED:
      return Health::kStopped;
    case v1::HEALTH_INERT:
      return Health::kInert;
    default:
      return Health::kStarting;
  }
}

void Read(const v1::SliceStatus& response, SliceStatus* slice) {
  if (v1::SliceState_IsValid(response.state())) {
    slice->state = static_cast<SliceState>(response.state());
  }
  slice->number = response.number();
  if (const auto method = ParseQuantizationMethod(response.method()); method.ok()) {
    slice->request.method = *method;
  }
  slice->request.bits = response.bits();
  slice->request.points = response.points();
  slice->points_done = response.points_done();
  slice->points_all = response.points_all();
  slice->path = response.path();
  slice->error = response.error();
}

void Read(const v1::CooldownStatus& response, CooldownStatus* cooldown) {
  if (v1::CooldownState_IsValid(response.state())) {
    cooldown->state = static_cast<CooldownState>(response.state());
  }
  cooldown->number = response.number();
  cooldown->decay_steps = response.decay_steps();
  cooldown->step = response.step();
  cooldown->steps_done = response.steps_done();
  cooldown->steps_all = response.steps_all();
  cooldown->waits_for_core = response.waits_for_core();
  cooldown->result = response.result();
  cooldown->error = response.error();
}

void Read(const v1::GetStatusResponse& response, MonitorStatus* status) {
  status->health = FromProto(response.health());
  status->health_reason = response.health_reason();
  status->busy = response.busy();
  if (response.has_step()) status->step = response.step();
  status->steps_total = response.steps_total();
  status->last_step_unix_seconds = response.last_step_unix_seconds();
  status->learning_rate = response.has_learning_rate() ? response.learning_rate() : std::nan("");
  if (response.has_tokens()) status->tokens = response.tokens();
  if (response.has_training_loss_nats()) {
    status->training_loss_nats = response.training_loss_nats();
  }
  if (v1::LrPhase_IsValid(response.lr_phase())) {
    status->lr_phase = static_cast<LrPhase>(response.lr_phase());
  }
  for (int i = 0; i < kSnapshotResults; ++i) {
    const auto found =
        response.snapshots().find(std::string(ToString(static_cast<SnapshotResult>(i))));
    if (found != response.snapshots().end()) {
      status->snapshots[static_cast<size_t>(i)] = found->second;
    }
  }
  status->reports_total = response.reports_total();
  status->probe_failures_total = response.probe_failures_total();
  if (response.has_overhead_ratio()) status->overhead_ratio = response.overhead_ratio();
  if (response.has_overhead_low_ratio()) {
    status->overhead_low_ratio = response.overhead_low_ratio();
  }
  if (response.has_overhead_high_ratio()) {
    status->overhead_high_ratio = response.overhead_high_ratio();
  }
  status->overhead_comparisons = response.overhead_comparisons();
  status->stall_seconds_total = response.stall_seconds_total();
  status->duty_cycle = response.duty_cycle();
  status->overhead_budget_ratio = response.overhead_budget_ratio();
  status->plan_level_ratio = response.plan_level_ratio();
  status->memory_bytes = response.memory_bytes();
  status->memory_peak_bytes = response.memory_peak_bytes();
  status->memory_budget_bytes = response.memory_budget_bytes();
  status->paused = response.paused();
  status->every = response.every_steps();
  if (response.has_slice()) Read(response.slice(), &status->slice);
  if (response.has_cooldown()) Read(response.cooldown(), &status->cooldown);
}

}  // namespace

void ToProto(const RunInfo& run, const MonitorStatus& status, v1::GetStatusResponse* response) {
  Fill(run, response);
  Fill(status, response);
}

void FromProto(const v1::GetStatusResponse& response, RunInfo* run, MonitorStatus* status) {
  run->run_id = response.run_id();
  run->attempt = response.attempt();
  run->fingerprint = response.fingerprint();
  run->device = response.device();
  run->parameters = response.parameters();
  run->covered_parameters = response.covered_parameters();
  Read(response, status);
}

}  // namespace ptqwatch::internal
