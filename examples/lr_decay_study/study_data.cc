#include "study_data.h"

#include <stdexcept>

#include "leg_graph.h"
#include "ptqwatch/offline/replay.h"

namespace ptqwatch::examples {
namespace {

Point PointOf(const Report& report) {
  Point point{.step = report.step,
              .learning_rate = report.learning_rate,
              .loss = report.probe_loss_nats.value_or(kAbsent)};
  for (const QuantizationReport& entry : report.quantization) {
    point.quantized[ShortName(ToString(entry.method), entry.bits)] = {
        .loss = entry.loss_nats.value_or(kAbsent),
        .error = entry.error_ratio.value_or(kAbsent),
        .error_stderr = entry.error_ratio_stderr.value_or(kAbsent)};
  }
  if (report.curvature) {
    point.trace = report.curvature->trace.value_or(kAbsent);
    point.weighted_trace = report.curvature->weighted_trace.value_or(kAbsent);
    point.top_eigenvalue = report.curvature->top_eigenvalue.value_or(kAbsent);
  }
  return point;
}

}  // namespace

StudyData ReadStudy(const StudySettings& settings, const StudyDir& dir,
                    const std::vector<Leg>& legs) {
  StudyData data{.settings = settings};
  for (const auto& [run, leg] : LastLegs(legs)) {
    if (!dir.IsFinished(leg->id)) continue;
    Series& series = data.runs[run];
    const auto read = ReplayJournal(dir.journal(leg->id).string(), [&](const AnalyzedReport& next) {
      series.push_back(PointOf(next.report));
      return true;
    });
    if (!read.ok()) throw std::runtime_error(std::string(read.status().message()));
  }
  for (const Leg& leg : legs) {
    if (dir.IsFinished(leg.id)) data.seconds[leg.id] = dir.SecondsOf(leg.id);
  }
  return data;
}

}  // namespace ptqwatch::examples
