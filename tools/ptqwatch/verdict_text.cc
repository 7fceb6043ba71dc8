#include "verdict_text.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "printable.h"

namespace ptqwatch::internal {
namespace {

// Evidence that is no series, by the name of a quantizer.
constexpr std::string_view kBeyondQuadratic = "beyond_quadratic_";

bool Has(const std::optional<double>& value) { return value && std::isfinite(*value); }

std::string Text(const std::optional<double>& value) {
  return Has(value) ? NumberText(*value, 3) : "-";
}

// " (0.080 to 0.140)", or "".
std::string Interval(const std::optional<double>& low, const std::optional<double>& high) {
  return Has(low) && Has(high) ? StrCat(" (", Text(low), " to ", Text(high), ")") : "";
}

// Lines of one kind; only the first one has the name.
std::string Lines(std::string_view name, const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) {
    text += FieldLine(text.empty() ? name : std::string_view(), value);
  }
  return text;
}

std::vector<std::string> EvidenceTexts(const Verdict& verdict) {
  std::vector<std::string> texts;
  if (Has(verdict.sigmas)) {
    texts.push_back(StrCat(
        Text(verdict.sigmas), " sigmas together",
        Has(verdict.alarm_sigmas) ? StrCat("; an alarm needs ", Text(verdict.alarm_sigmas)) : ""));
  }
  for (const Evidence& evidence : verdict.evidence) {
    const std::string series = Printable(evidence.series);
    if (series.starts_with(kBeyondQuadratic)) {
      texts.push_back(StrCat("the loss beyond the quadratic: from ", Text(evidence.value),
                             " times the error of ", series.substr(kBeyondQuadratic.size()),
                             " on"));
      continue;
    }
    std::string text = StrCat(series, " ", Text(evidence.value));
    if (Has(evidence.expected)) text += StrCat(", expected ", Text(evidence.expected));
    if (Has(evidence.ratio)) text += StrCat(", mean ratio ", Text(evidence.ratio));
    if (Has(evidence.sigmas)) text += StrCat(", ", Text(evidence.sigmas), " sigmas");
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> OutlookTexts(const Verdict& verdict, TextStyle style) {
  std::vector<std::string> texts;
  for (const DecayOutlook& outlook : verdict.outlook) {
    std::string text;
    if (Has(outlook.gain_kept_ratio)) {
      std::optional<double> error = outlook.gain_kept_stderr;
      if (error) *error *= 100;
      text = StrCat(" keeps ", EstimateText(100 * *outlook.gain_kept_ratio, error, style.utf8, 1),
                    " % of the decay's gain");
    }
    if (Has(outlook.minimum_loss_nats) && outlook.minimum_step) {
      text += StrCat(text.empty() ? "" : ";", " lowest loss ",
                     StrFormat("%.4f", *outlook.minimum_loss_nats), " nats at step ",
                     *outlook.minimum_step);
      if (Has(outlook.minimum_learning_rate)) {
        text += StrCat(", lr ", ScientificText(*outlook.minimum_learning_rate, 2));
      }
    }
    if (text.empty()) continue;
    texts.push_back(StrCat(ShortName(KeyOf(outlook)), text));
  }
  return texts;
}

std::string Missing(ProbeStatus status, std::string_view detail) {
  return StrCat(ToString(status), detail.empty() ? "" : ": ", Printable(detail));
}

std::string AverageName(const AveragingReport& average) {
  const bool merge = average.kind == AveragingKind::kMerge;
  if (merge && !average.shape) return "by merges";
  std::string name =
      StrCat("of ", average.snapshots, average.snapshots == 1 ? " snapshot" : " snapshots");
  if (average.kind == AveragingKind::kExponential && Has(average.decay)) {
    name += StrCat(" (decay ", Text(average.decay), ")");
  }
  if (merge) name += StrCat(" (weights of a ", ToString(average.shape), " decay)");
  return name;
}

std::string AveragingText(const AveragingReport& average, TextStyle style) {
  std::string text = StrCat(AverageName(average), ": ");
  if (average.status != ProbeStatus::kOk) {
    return StrCat(text, Missing(average.status, average.status_detail));
  }
  text += StrCat("loss ", Has(average.loss_nats) ? StrFormat("%.4f", *average.loss_nats) : "-");
  const std::vector<std::string> names = QuantizerNames(average.quantization);
  for (const size_t i : QuantizerOrder(average.quantization)) {
    text += StrCat(", ", names[i], " E ", ErrorRatioCell(average.quantization[i], style.utf8));
  }
  return text;
}

// An average with a loss.
struct AverageLoss {
  const AveragingReport* average = nullptr;
  double loss = 0;
};

// "lowest loss: of 6 snapshots; gptq3: of 3 snapshots; rtn4: of 6 snapshots", or "" with fewer than
// two averages.
std::string LeastOfAverages(const Report& report) {
  std::map<std::string, AverageLoss> least;  // by quantizer; "": in full precision
  int measured = 0;
  for (const AveragingReport& average : report.averaging) {
    if (average.status != ProbeStatus::kOk || !Has(average.loss_nats)) continue;
    ++measured;
    const auto add = [&](const std::string& name, const std::optional<double>& loss) {
      if (!Has(loss)) return;
      AverageLoss& found = least[name];
      if (found.average == nullptr || *loss < found.loss) found = {&average, *loss};
    };
    add("", average.loss_nats);
    for (const QuantizationReport& entry : average.quantization) {
      if (entry.status == ProbeStatus::kOk) add(ShortName(KeyOf(entry)), entry.loss_nats);
    }
  }
  if (measured < 2) return "";
  std::string text = "lowest loss";
  for (const auto& [name, found] : least) {
    if (!name.empty()) text += StrCat("; ", name);
    text += StrCat(": ", AverageName(*found.average));
  }
  return text;
}

std::string MixedPrecisionText(const Report& report, const MixedPrecisionReport& mixed,
                               TextStyle style) {
  const size_t raised = mixed.raised_layers.size();
  std::string text = ShortName(KeyOf(mixed));
  if (raised > 0) {
    text += StrCat(", ", raised, raised == 1 ? " layer" : " layers", " at ", mixed.raised_bits,
                   " bits");
  }
  text += ": ";
  if (mixed.status != ProbeStatus::kOk || !Has(mixed.delta_nats)) {
    return StrCat(text, Missing(mixed.status, mixed.status_detail));
  }
  std::optional<double> uniform;
  for (const QuantizationReport& entry : report.quantization) {
    if (SameQuantizer(entry, mixed) && entry.status == ProbeStatus::kOk && !uniform)
      uniform = entry.delta_nats;
  }
  return StrCat(text, Text(uniform), " -> ",
                EstimateText(*mixed.delta_nats, mixed.delta_stderr_nats, style.utf8), " nats");
}

}  // namespace

std::string SeverityText(const Verdict& verdict) {
  std::string text;
  if (Has(verdict.severity_nats)) {
    text = StrCat(*verdict.severity_nats > 0 ? "+" : "", Text(verdict.severity_nats), " nats",
                  Interval(verdict.severity_low_nats, verdict.severity_high_nats));
  }
  if (Has(verdict.severity_ratio)) {
    text += StrCat(text.empty() ? "" : ", ", Text(verdict.severity_ratio), " times the baseline",
                   Interval(verdict.severity_low_ratio, verdict.severity_high_ratio));
  }
  return text;
}

std::string VerdictBlock(const Verdict& verdict, TextStyle style) {
  std::string state = VerdictCell(verdict.state, style.color);
  if (verdict.onset_step) state += StrCat(" since step ", *verdict.onset_step);
  if (!verdict.summary.empty()) state += StrCat(": ", Printable(verdict.summary));
  std::string text = FieldLine("verdict", state);
  std::vector<std::string> onsets;
  if (verdict.decay_onset_step) {
    onsets.push_back(StrCat("the rate began to fall at step ", *verdict.decay_onset_step));
  }
  if (verdict.onset_low_step && verdict.onset_high_step) {
    onsets.push_back(StrCat("the rise began between steps ", *verdict.onset_low_step, " and ",
                            *verdict.onset_high_step));
  }
  if (verdict.loss_converged_step) {
    onsets.push_back(StrCat("the loss stopped improving at step ", *verdict.loss_converged_step));
  }
  text += Lines("onsets", onsets);
  if (const std::string severity = SeverityText(verdict); !severity.empty()) {
    text += FieldLine("severity", severity);
  }
  std::vector<std::string> advice;
  for (const Advice& action : verdict.advice) advice.push_back(Printable(action.text));
  return StrCat(text, Lines("evidence", EvidenceTexts(verdict)),
                Lines("outlook", OutlookTexts(verdict, style)), Lines("advice", advice));
}

std::string AveragingBlock(const Report& report, TextStyle style) {
  std::vector<std::string> texts;
  for (const AveragingReport& average : report.averaging) {
    texts.push_back(AveragingText(average, style));
  }
  if (std::string least = LeastOfAverages(report); !least.empty()) {
    texts.push_back(std::move(least));
  }
  return Lines("average", texts);
}

std::string MixedPrecisionBlock(const Report& report, TextStyle style) {
  std::vector<std::string> texts;
  for (const MixedPrecisionReport& mixed : report.mixed_precision) {
    texts.push_back(MixedPrecisionText(report, mixed, style));
  }
  return Lines("mixed", texts);
}

std::string NoiseBlock(const Report& report, TextStyle style) {
  if (!report.noise) return "";
  const NoiseReport& noise = *report.noise;
  if (noise.status != ProbeStatus::kOk || !Has(noise.delta_nats)) {
    return Lines("noise", {Missing(noise.status, noise.status_detail)});
  }
  return Lines(
      "noise",
      {StrCat(
          *noise.delta_nats > 0 ? "+" : "",
          EstimateText(*noise.delta_nats, noise.delta_stderr_nats, style.utf8),
          StrFormat(" nats, noise of %g%% of the norm of each weight", 100 * noise.relative_norm),
          noise.routing_change_ratio ? StrFormat(", %.3g%% of the routers' choices change",
                                                 100 * *noise.routing_change_ratio)
                                     : "")});
}

std::string PooledBlock(const Report& report, TextStyle style) {
  if (!report.pooled) return "";
  const PooledLoss& pooled = *report.pooled;
  if (pooled.status != ProbeStatus::kOk || !Has(pooled.delta_nats)) {
    return Lines("pooled", {Missing(pooled.status, pooled.status_detail)});
  }
  return Lines(
      "pooled",
      {StrCat(ShortName(KeyOf(pooled)), " E ", ErrorRatioCell(pooled, style.utf8), ", ",
              EstimateText(*pooled.delta_nats, pooled.delta_stderr_nats, style.utf8), " nats on ",
              pooled.probe_tokens, " tokens of ", pooled.sets.size(), " sets")});
}

std::string PredictionBlock(const Report& report) {
  if (!report.predicted_end) return "";
  const PredictedEnd& end = *report.predicted_end;
  std::string text = StrCat("decay of ", end.decay_steps, " steps, from step ", end.step, ": ");
  if (end.status != ProbeStatus::kOk) {
    return Lines("predicted", {StrCat(text, Missing(end.status, end.status_detail))});
  }
  text += StrCat("loss ", Has(end.loss_nats) ? StrFormat("%.3f", *end.loss_nats) : "-");
  for (const PredictedError& error : end.quantization) {
    text += StrCat(", ", ShortName(KeyOf(error)), " E ");
    if (!Has(error.error_ratio) || !Has(error.error_low_ratio) || !Has(error.error_high_ratio)) {
      text += "-";
      continue;
    }
    text += StrFormat("%.1f%% (%.1f to %.1f)", 100 * *error.error_ratio,
                      100 * *error.error_low_ratio, 100 * *error.error_high_ratio);
  }
  return Lines("predicted", {text});
}

}  // namespace ptqwatch::internal
