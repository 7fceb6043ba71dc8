#include "feed/json_feed.h"

#include <algorithm>
#include <cmath>

#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxPageBytes = size_t{3} << 20;

constexpr int64_t kSeriesShare = 4;  // of the memory and the bytes

ReportHistory::Limits SeriesLimits(ReportHistory::Limits limits) {
  limits.bytes = std::max<int64_t>(1, limits.bytes / kSeriesShare);
  limits.memory_bytes = std::max<int64_t>(1, limits.memory_bytes / kSeriesShare);
  return limits;
}

ReportHistory::Limits Less(ReportHistory::Limits limits, const ReportHistory::Limits& other) {
  limits.bytes = std::max<int64_t>(1, limits.bytes - other.bytes);
  limits.memory_bytes = std::max<int64_t>(1, limits.memory_bytes - other.memory_bytes);
  return limits;
}

AnalyzedReport WithoutLayers(AnalyzedReport report) {
  for (QuantizationReport& entry : report.report.quantization) entry.layers.clear();
  for (AveragingReport& average : report.report.averaging) {
    for (QuantizationReport& entry : average.quantization) entry.layers.clear();
  }
  if (report.report.curvature) report.report.curvature->layers.clear();
  report.report.skipped_layers.clear();
  return report;
}

using Json = nlohmann::ordered_json;

// Numbers that are absent or not finite have no key, as in the journal.
void Put(Json& object, const char* key, double value) {
  if (std::isfinite(value)) object[key] = value;
}
void Put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) Put(object, key, *value);
}
void Put(Json& object, const char* key, const std::optional<int64_t>& value) {
  if (value) object[key] = *value;
}

Json SeriesOf(const QuantizationReport& entry) {
  Json json = {{"method", ToString(entry.method)}, {"bits", entry.bits}};
  Put(json, "loss_nats", entry.loss_nats);
  Put(json, "error_ratio", entry.error_ratio);
  Put(json, "error_ratio_stderr", entry.error_ratio_stderr);
  return json;
}

Json SeriesOf(const CurvatureReport& curvature) {
  Json json = Json::object();
  Put(json, "top_eigenvalue", curvature.top_eigenvalue);
  Put(json, "top_eigenvalue_residual_ratio", curvature.top_eigenvalue_residual_ratio);
  Put(json, "trace", curvature.trace);
  Put(json, "trace_stderr", curvature.trace_stderr);
  return json;
}

Json SeriesOf(const Verdict& verdict) {
  Json json = {{"state", ToString(verdict.state)}};
  Put(json, "onset_step", verdict.onset_step);
  Put(json, "sigmas", verdict.sigmas);
  Put(json, "alarm_sigmas", verdict.alarm_sigmas);
  return json;
}

}  // namespace

std::string SeriesJson(const AnalyzedReport& analyzed) {
  const Report& report = analyzed.report;
  Json json = {{"run_id", report.run_id}, {"sequence", report.sequence}, {"step", report.step}};
  Put(json, "snapshot_time_unix_seconds", report.snapshot_time_unix_seconds);
  Put(json, "learning_rate", report.learning_rate);
  Put(json, "training_loss_nats", report.training_loss_nats);
  json["lr_phase"] = ToString(report.lr_phase);
  Put(json, "decay_onset_step", report.decay_onset_step);
  Put(json, "probe_loss_nats", report.probe_loss_nats);
  Put(json, "probe_loss_stderr_nats", report.probe_loss_stderr_nats);
  if (report.probe_examples > 0) json["probe_examples"] = report.probe_examples;
  Json& quantization = json["quantization"] = Json::array();
  for (const QuantizationReport& entry : report.quantization) {
    quantization.push_back(SeriesOf(entry));
  }
  if (report.curvature) json["curvature"] = SeriesOf(*report.curvature);
  json["verdict"] = SeriesOf(analyzed.verdict);
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

JsonFeed::JsonFeed(const ReportHistory::Limits& limits, std::function<void()> changed)
    : changed_(std::move(changed)),
      reports_(Less(limits, SeriesLimits(limits))),
      series_(SeriesLimits(limits)),
      events_(kMaxEvents) {}

std::pair<const ReportHistory*, size_t> JsonFeed::Find(ReportForm form) const {
  if (form == ReportForm::kSeries) return {&series_, 0};
  return {&reports_, form == ReportForm::kFull ? 0 : 1};
}

bool JsonFeed::Publish(const AnalyzedReport& report) {
  const int64_t sequence = report.report.sequence;
  WireReport wire{.sequence = sequence,
                  .forms = {Share(ToJson(report)), Share(ToJson(WithoutLayers(report)))}};
  WireReport series{.sequence = sequence, .forms = {Share(SeriesJson(report))}};
  {
    MutexLock lock(mutex_);
    if (sequence <= reports_.newest()) return false;
    reports_.Append(std::move(wire));
    series_.Append(std::move(series));
  }
  changed_();
  return true;
}

void JsonFeed::Publish(const Event& event) {
  SharedBytes json = Share(EventToJson(event));
  {
    MutexLock lock(mutex_);
    events_.Append({.number = events_.newest() + 1,
                    .after_sequence = reports_.newest(),
                    .bytes = std::move(json)});
  }
  changed_();
}

void JsonFeed::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_();
}

bool JsonFeed::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

JsonFeed::Position JsonFeed::newest() const {
  MutexLock lock(mutex_);
  return {reports_.newest(), events_.newest()};
}

std::optional<JsonFeed::Message> JsonFeed::Next(Position& position, ReportForm form) const {
  MutexLock lock(mutex_);
  const auto [history, index] = Find(form);
  int64_t missed = 0;
  while (true) {
    const int64_t next = history->After(position.sequence);
    const WireEvent* const event = events_.After(position.event);
    if (event != nullptr && (next == 0 || event->after_sequence < next)) {
      position.event = event->number;
      return Message{.is_event = true, .missed = 0, .json = event->bytes};
    }
    if (next == 0) return std::nullopt;
    // What lies before the oldest report was dropped; what cannot be read is lost as well.
    missed += position.sequence == 0 ? 0 : next - position.sequence - 1;
    position.sequence = next;
    if (SharedBytes json = history->Bytes(next, index)) {
      return Message{.is_event = false, .missed = missed, .json = std::move(json)};
    }
    ++missed;
  }
}

JsonFeed::Page JsonFeed::List(int64_t after_sequence, int64_t limit, ReportForm form) const {
  MutexLock lock(mutex_);
  const auto [history, index] = Find(form);
  Page page{.reports = "", .more = false, .oldest = history->oldest(), .newest = history->newest()};
  int64_t count = 0;
  int64_t next = history->After(after_sequence);
  for (; next != 0; next = history->After(next)) {
    const SharedBytes json = history->Bytes(next, index);
    if (json == nullptr) continue;
    if (count > 0 && (count == limit || page.reports.size() + json->size() > kMaxPageBytes)) break;
    if (count++ > 0) page.reports += ",\n";
    page.reports += *json;
  }
  page.more = next != 0;
  return page;
}

}  // namespace ptqwatch::internal
