#include "feed/report_json.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace {

AnalyzedReport WithoutLayers(AnalyzedReport report) {
  for (QuantizationReport& entry : report.report.quantization) entry.layers.clear();
  for (AveragingReport& average : report.report.averaging) {
    for (QuantizationReport& entry : average.quantization) entry.layers.clear();
  }
  if (report.report.curvature) report.report.curvature->layers.clear();
  report.report.skipped_layers.clear();
  report.report.parameter_digests.clear();
  return report;
}

using Json = nlohmann::ordered_json;

// As in the journal, a number that is absent or not finite gets no key.
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
  if (entry.format) json["format"] = *entry.format;
  Put(json, "loss_nats", entry.loss_nats);
  Put(json, "error_ratio", entry.error_ratio);
  Put(json, "error_ratio_stderr", entry.error_ratio_stderr);
  return json;
}

Json SeriesOf(const CurvatureReport& curvature) {
  Json json = Json::object();
  Put(json, "top_eigenvalue", curvature.top_eigenvalue);
  Put(json, "top_eigenvalue_upper", curvature.top_eigenvalue_upper);
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
  Put(json, "tokens", report.tokens);
  if (report.branch) json["branch"] = *report.branch;
  if (report.source) json["source"] = *report.source;
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

void AddJsonForms(ReportForms& forms) {
  const auto form = [&](ReportForm which) -> auto& { return forms[static_cast<size_t>(which)]; };
  form(ReportForm::kJson) = [](const AnalyzedReport& report) { return ToJson(report); };
  form(ReportForm::kJsonWithoutLayers) = [](const AnalyzedReport& report) {
    return ToJson(WithoutLayers(report));
  };
  form(ReportForm::kJsonSeries) = SeriesJson;
}

}  // namespace ptqwatch::internal
