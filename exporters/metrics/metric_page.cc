#include "metrics/metric_page.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "base/strings.h"
#include "prometheus/text_serializer.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kOpenMetricsType = "application/openmetrics-text";

std::string TextOf(prometheus::MetricFamily family) {
  if (family.metric.empty()) return "";
  return prometheus::TextSerializer().Serialize({std::move(family)});
}

struct FamilyHead {
  std::string_view name;
  std::string_view help;
  std::string_view type;
};

// OpenMetrics differs from the text format only in the two lines about a family: the names of
// counters and infos have no suffix there, and quotes in the help text are escaped.
std::string OpenMetricsHead(FamilyHead head) {
  for (const auto& [suffix, type] :
       {std::pair<std::string_view, std::string_view>{"_total", "counter"}, {"_info", "info"}}) {
    if (!head.name.ends_with(suffix)) continue;
    head.name.remove_suffix(suffix.size());
    head.type = type;
  }
  const std::string help =
      absl::StrReplaceAll(absl::string_view(head.help.data(), head.help.size()),
                          {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
  return StrCat("# HELP ", head.name, " ", help, "\n# TYPE ", head.name, " ", head.type, "\n");
}

void Append(std::string& page, std::string_view text, const FamilyHead& head, MetricFormat format) {
  if (text.empty()) return;
  if (format == MetricFormat::kOpenMetrics) {
    page += OpenMetricsHead(head);
    // Skips the two lines that begin with "#".
    text.remove_prefix(text.find('\n') + 1);
    text.remove_prefix(text.find('\n') + 1);
  }
  page += text;
}

std::string_view TypeName(MetricType type) {
  return type == MetricType::kCounter ? "counter" : "gauge";
}

}  // namespace

MetricFormat MetricFormatFor(std::string_view accept) {
  const std::string types = absl::AsciiStrToLower({accept.data(), accept.size()});
  return types.find(kOpenMetricsType) == std::string::npos ? MetricFormat::kText
                                                           : MetricFormat::kOpenMetrics;
}

std::string_view ContentTypeOf(MetricFormat format) {
  return format == MetricFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string MetricPage::Render(absl::Span<const RunMetrics> runs, MetricFormat format) {
  const std::vector<std::string>& layers = LayerTexts(runs);
  ShownLayers none(0);
  std::string page;
  size_t next_layers = 0;
  for (const MetricInfo& metric : MetricCatalog()) {
    const FamilyHead head{metric.name, metric.help, TypeName(metric.type)};
    if (HasLayers(metric)) {
      Append(page, layers[next_layers++], head, format);
    } else {
      Append(page, TextOf(MakeMetricFamily(metric, runs, none)), head, format);
    }
  }
  Append(page, TextOf(MakeStallFamily(runs)), {kStallMetricName, kStallMetricHelp, "histogram"},
         format);
  if (format == MetricFormat::kOpenMetrics) page += "# EOF\n";
  return page;
}

const std::vector<std::string>& MetricPage::LayerTexts(absl::Span<const RunMetrics> runs) {
  std::string reports;
  for (const RunMetrics& run : runs) {
    reports += StrCat(run.run.size(), " ", run.run, " ", run.input.run.run_id, " ",
                      reinterpret_cast<uintptr_t>(run.input.report), " ");
    if (run.input.report == nullptr) continue;
    const Report& report = run.input.report->report;
    // A new report may have the address of a deleted one.
    reports += StrCat(report.attempt, " ", report.sequence, " ", report.step, "\n");
  }
  if (reports == reports_) return texts_;
  std::vector<std::string> texts;
  for (const MetricInfo& metric : MetricCatalog()) {
    if (HasLayers(metric)) texts.push_back(LayerText(metric, runs, shown_));
  }
  reports_ = std::move(reports);
  texts_ = std::move(texts);
  return texts_;
}

}  // namespace ptqwatch::internal
