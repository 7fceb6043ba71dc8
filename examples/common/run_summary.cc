#include "run_summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ptqwatch::examples {
namespace {

using Reports = std::vector<std::shared_ptr<const AnalyzedReport>>;

struct Statistics {
  double mean = 0;
  double deviation = 0;  ///< of the sample; 0 for a single value
};

std::optional<Statistics> Summarize(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  Statistics result;
  for (const double value : values) result.mean += value;
  result.mean /= static_cast<double>(values.size());
  if (values.size() > 1) {
    double squares = 0;
    for (const double value : values) squares += (value - result.mean) * (value - result.mean);
    result.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  }
  return result;
}

const QuantizationReport* Find(const Report& report, const QuantizationReport& like) {
  for (const QuantizationReport& entry : report.quantization) {
    if (entry.method == like.method && entry.bits == like.bits) return &entry;
  }
  return nullptr;
}

/// One measured value in its two windows.
struct Comparison {
  size_t stable_count = 0;
  std::optional<Statistics> stable;
  std::optional<Statistics> end;
};

using Getter = std::function<std::optional<double>(const Report&)>;

Comparison Compare(const Reports& reports, double unit, const Getter& get) {
  const bool ends_stable = reports.back()->report.lr_phase == LrPhase::kStable;
  std::vector<double> stable;
  std::vector<double> end;
  for (const auto& report : reports) {
    const std::optional<double> measured = get(report->report);
    if (!measured.has_value()) continue;
    const double value = *measured * unit;
    const bool is_stable = report->report.lr_phase == LrPhase::kStable;
    if (is_stable) stable.push_back(value);
    if (is_stable == ends_stable) end.push_back(value);
  }
  const std::span<const double> window = std::span(stable).subspan(stable.size() / 3);
  const std::span<const double> last = std::span(end).last(std::min<size_t>(2, end.size()));
  return {window.size(), Summarize(window), Summarize(last)};
}

Getter Of(const QuantizationReport& like, std::optional<double> QuantizationReport::*member) {
  return [&like, member](const Report& report) {
    const QuantizationReport* entry = Find(report, like);
    return entry == nullptr ? std::nullopt : entry->*member;
  };
}

Getter Of(std::optional<double> CurvatureReport::*member) {
  return [member](const Report& report) {
    return report.curvature ? *report.curvature.*member : std::nullopt;
  };
}

std::string Cells(const Comparison& value, int digits) {
  std::string text = value.stable.has_value()
                         ? absl::StrFormat("%9.*f +- %-7.*f", digits, value.stable->mean, digits,
                                           value.stable->deviation)
                         : absl::StrFormat("%20s", "-");
  absl::StrAppend(&text, value.end.has_value() ? absl::StrFormat("%9.*f", digits, value.end->mean)
                                               : absl::StrFormat("%9s", "-"));
  // A mean within its own scatter of zero is no base for a ratio.
  const bool has_ratio = value.stable.has_value() && value.end.has_value() &&
                         value.stable->mean > value.stable->deviation;
  absl::StrAppend(&text, has_ratio ? absl::StrFormat("%8.2f", value.end->mean / value.stable->mean)
                                   : absl::StrFormat("%8s", "-"));
  return text;
}

}  // namespace

void RunSummary::Add(std::shared_ptr<const AnalyzedReport> report) {
  const std::lock_guard lock(mutex_);
  reports_.push_back(std::move(report));
}

std::string RunSummary::Table() const {
  const std::lock_guard lock(mutex_);
  if (reports_.empty()) return "summary: no snapshot was measured\n";
  std::string rows;
  size_t stable_count = 0;
  int name_width = 5;
  for (const QuantizationReport& entry : reports_.back()->report.quantization) {
    name_width = std::max(name_width, static_cast<int>(ToString(entry.method).size()) + 1);
  }
  for (const QuantizationReport& like : reports_.back()->report.quantization) {
    const Comparison error = Compare(reports_, 100, Of(like, &QuantizationReport::error_ratio));
    const Comparison delta = Compare(reports_, 1, Of(like, &QuantizationReport::delta_nats));
    stable_count = std::max(stable_count, error.stable_count);
    absl::StrAppendFormat(&rows, "%-*s%2d bits%s%s\n", name_width,
                          std::string(ToString(like.method)), like.bits, Cells(error, 2),
                          Cells(delta, 4));
  }
  std::string curvature;
  const std::pair<const char*, std::optional<double> CurvatureReport::*> curves[] = {
      {"eigenvalue", &CurvatureReport::top_eigenvalue},
      {"trace", &CurvatureReport::trace},
      {"w. trace", &CurvatureReport::weighted_trace},
      {"edge ratio", &CurvatureReport::edge_of_stability_ratio}};
  for (const auto& [name, member] : curves) {
    const Comparison value = Compare(reports_, 1, Of(member));
    if (value.end) absl::StrAppendFormat(&curvature, "%-12s%s\n", name, Cells(value, 2));
  }
  const auto columns = absl::StrFormat("%9s +- %-7s%9s%8s", "stable", "sd", "end", "ratio");
  return absl::StrCat(absl::StrFormat("summary: %d snapshots, %d of them in the stable window\n",
                                      reports_.size(), stable_count),
                      absl::StrFormat("%*s%-37s  %s\n", name_width + 7, "", "   error E (%)",
                                      "   loss increase (nats)"),
                      absl::StrFormat("%*s%s%s\n", name_width + 7, "", columns, columns), rows,
                      curvature.empty() ? "" : "   curvature of the quantized weights\n",
                      curvature);
}

}  // namespace ptqwatch::examples
