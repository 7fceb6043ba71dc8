#include "report_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/strings.h"
#include "printable.h"
#include "text_table.h"

namespace ptqwatch::internal {
namespace {

constexpr double kMinUnsure = 0.1;
constexpr int kMaxErrorDecimals = 2;  // more would make the columns ragged

bool HasNumber(const std::optional<double>& value) {
  return value.has_value() && std::isfinite(*value);
}

// A value that is present but not finite is more informative than its status.
std::string_view Missing(const std::optional<double>& value, ProbeStatus status) {
  return MissingCell(value.has_value() && status == ProbeStatus::kOk ? ProbeStatus::kNonFinite
                                                                     : status);
}

std::string VerdictWord(VerdictState state) {
  return state == VerdictState::kUnknown ? "-" : std::string(ToString(state));
}

// For narrow columns.
std::string ShortVerdict(VerdictState state) {
  return state == VerdictState::kDecayDegradation ? "decay" : VerdictWord(state);
}

std::string LossCell(const Report& report) {
  if (report.probe_status != ProbeStatus::kOk || !HasNumber(report.probe_loss_nats)) {
    return std::string(Missing(report.probe_loss_nats, report.probe_status));
  }
  const double loss = *report.probe_loss_nats;
  return std::fabs(loss) < 100 ? StrFormat("%.4f", loss) : NumberText(loss, 4);
}

bool HasDigit(std::string_view text) {
  return text.find_first_of("0123456789") != std::string_view::npos;
}

template <typename Record>
std::string ErrorCell(const Record& record, bool utf8) {
  if (record.status != ProbeStatus::kOk || !HasNumber(record.error_ratio)) {
    return std::string(Missing(record.error_ratio, record.status));
  }
  std::optional<double> error = record.error_ratio_stderr;
  if (error.has_value()) *error *= 100;
  return StrCat(EstimateText(100 * *record.error_ratio, error, utf8, kMaxErrorDecimals), "%");
}

size_t TotalWidth(const std::vector<size_t>& widths, size_t gap) {
  return std::accumulate(widths.begin(), widths.end(), gap * (widths.size() - 1));
}

}  // namespace

std::vector<std::string> QuantizerNames(const std::vector<QuantizationReport>& quantization) {
  std::vector<std::string> names;
  for (const QuantizationReport& entry : quantization) {
    const auto alike =
        std::count_if(quantization.begin(), quantization.end(),
                      [&](const auto& other) { return SameQuantizer(other, entry); });
    std::string name = ShortName(KeyOf(entry));
    if (alike > 1) {
      name += StrCat("/", entry.group_size < 0 ? "row" : StrCat("g", entry.group_size));
    }
    // Quantizers with equal names still need separate columns.
    const auto same = std::count(names.begin(), names.end(), name);
    if (same > 0) name += StrCat("#", same + 1);
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<size_t> QuantizerOrder(const std::vector<QuantizationReport>& quantization) {
  const auto rank = [&](size_t i) {
    if (quantization[i].method != QuantizationMethod::kGptq) return 2;
    return quantization[i].bits == 3 ? 0 : quantization[i].bits == 4 ? 1 : 2;
  };
  std::vector<size_t> order(quantization.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank(a) < rank(b); });
  return order;
}

std::string_view MissingCell(ProbeStatus status) {
  switch (status) {
    case ProbeStatus::kNonFinite:
      return "inf/nan";
    case ProbeStatus::kFailed:
      return "failed";
    case ProbeStatus::kOutOfTime:
      return "timeout";
    case ProbeStatus::kCancelled:
      return "stopped";
    case ProbeStatus::kDisabled:
      return "off";
    case ProbeStatus::kOtherRank:
      return "other";
    default:
      return "-";
  }
}

std::string ErrorRatioCell(const QuantizationReport& entry, bool utf8) {
  return ErrorCell(entry, utf8);
}

std::string ErrorRatioCell(const PooledLoss& pooled, bool utf8) { return ErrorCell(pooled, utf8); }

std::string TopEigenvalueCell(const CurvatureReport& curvature) {
  if (curvature.status != ProbeStatus::kOk || !HasNumber(curvature.top_eigenvalue)) {
    return std::string(Missing(curvature.top_eigenvalue, curvature.status));
  }
  const double value = *curvature.top_eigenvalue;
  const bool unsure =
      curvature.top_eigenvalue_residual_ratio.value_or(0) >= kMinUnsure ||
      curvature.top_eigenvalue_upper.value_or(value) - value >= kMinUnsure * std::abs(value);
  return StrCat(unsure ? "~" : "", NumberText(value, 3));
}

std::string TraceCell(const CurvatureReport& curvature, bool utf8) {
  const ProbeStatus status = curvature.trace_status.value_or(curvature.status);
  if (status != ProbeStatus::kOk || !HasNumber(curvature.trace)) {
    return std::string(Missing(curvature.trace, status));
  }
  return EstimateText(*curvature.trace, curvature.trace_stderr, utf8);
}

std::string EdgeCell(const CurvatureReport& curvature) {
  const ProbeStatus status = curvature.edge_of_stability_status.value_or(curvature.status);
  if (status != ProbeStatus::kOk || !HasNumber(curvature.edge_of_stability_ratio)) {
    return std::string(Missing(curvature.edge_of_stability_ratio, status));
  }
  const bool unsure = curvature.edge_of_stability_residual_ratio.value_or(0) >= kMinUnsure;
  return StrCat(unsure ? "~" : "", NumberText(*curvature.edge_of_stability_ratio, 2));
}

std::string_view VerdictColor(VerdictState state) {
  switch (state) {
    case VerdictState::kDrifting:
    case VerdictState::kRecovering:
    case VerdictState::kUnclear:
      return kYellow;
    case VerdictState::kDecayDegradation:
    case VerdictState::kSpike:
      return kRed;
    default:
      return {};
  }
}

const QuantizationReport* WatchedQuantizer(const AnalyzedReport& analyzed) {
  const std::vector<QuantizationReport>& entries = analyzed.report.quantization;
  const Verdict& verdict = analyzed.verdict;
  for (const QuantizationReport& entry : entries) {
    if (verdict.method && SameQuantizer(entry, verdict)) {
      return &entry;
    }
  }
  return entries.empty() ? nullptr : &entries[QuantizerOrder(entries)[0]];
}

std::string VerdictCell(VerdictState state, bool color) {
  return Painted(VerdictWord(state), color ? VerdictColor(state) : "");
}

std::vector<ReportTable::Column> ReportTable::Columns(const AnalyzedReport& analyzed) {
  const Report& report = analyzed.report;
  const std::vector<std::string> names = QuantizerNames(report.quantization);
  for (const size_t i : QuantizerOrder(report.quantization)) {
    if (std::count(quantizers_.begin(), quantizers_.end(), names[i]) == 0) {
      quantizers_.push_back(names[i]);
    }
  }
  curvature_ = curvature_ || report.curvature.has_value();
  pooled_ = pooled_ || report.pooled.has_value();
  edge_ = edge_ || (report.curvature && report.curvature->edge_of_stability_ratio);

  enum Rank {
    kAlways,
    kVerdict,
    kSecondError,
    kPooled,
    kPhase,
    kTopEigenvalue,
    kTrace,
    kRate,
    kLoss,
    kEdge,
    kRest
  };
  std::vector<Column> columns;
  const auto add = [&](std::string title, std::string text, size_t width, int rank) -> Column& {
    // A column stays widened, so that rows stay aligned. Words fit into every column except the
    // loss, and a report without a loss has no verdict that could be cut.
    size_t& widest = widths_.try_emplace(title, std::max(width, DisplayWidth(title))).first->second;
    if (rank != kLoss || HasDigit(text)) widest = std::max(widest, DisplayWidth(text));
    columns.push_back({std::move(title), std::move(text), widest, rank});
    return columns.back();
  };
  branch_ = branch_ || report.branch.has_value();
  if (branch_) add("branch", Printable(report.branch.value_or("-")), 6, kVerdict).left = true;
  add("step", StrCat(report.step), 6, kAlways);
  add("lr", RateText(report.learning_rate), 7, kRate);
  add("phase", report.lr_phase == LrPhase::kUnknown ? "-" : std::string(ToString(report.lr_phase)),
      6, kPhase);
  add("loss", LossCell(report), 6, kLoss);
  for (size_t i = 0; i < quantizers_.size(); ++i) {
    const auto found = std::find(names.begin(), names.end(), quantizers_[i]);
    const std::string text =
        found == names.end()
            ? "-"
            : ErrorRatioCell(report.quantization[static_cast<size_t>(found - names.begin())],
                             style_.utf8);
    const int rank = i == 0 ? kAlways : i == 1 ? kSecondError : kRest + static_cast<int>(i);
    add(quantizers_[i], text, 11, rank);
  }
  if (pooled_) {
    add("pooled", report.pooled ? ErrorRatioCell(*report.pooled, style_.utf8) : "-", 11, kPooled);
  }
  if (curvature_) {
    const bool has = report.curvature.has_value();
    add("top eig", has ? TopEigenvalueCell(*report.curvature) : "-", 7, kTopEigenvalue);
    add("trace", has ? TraceCell(*report.curvature, style_.utf8) : "-", 8, kTrace);
    if (edge_) add("edge", has ? EdgeCell(*report.curvature) : "-", 7, kEdge);
  }
  Column& verdict = add("verdict", ShortVerdict(analyzed.verdict.state), 10, kVerdict);
  verdict.left = true;
  if (style_.color) verdict.color = VerdictColor(analyzed.verdict.state);
  return columns;
}

std::string ReportTable::Render(const std::vector<Column>& columns, size_t gap, size_t width,
                                bool header) const {
  std::vector<TextCell> cells;
  for (const Column& column : columns) {
    cells.push_back({.text = header ? column.title : column.text,
                     .width = column.width,
                     .left = column.left,
                     .color = header ? std::string_view() : column.color});
  }
  std::string line = TextRow(cells, gap, width);
  return header && style_.color ? Painted(std::move(line), kBold) : line;
}

ReportTable::Lines ReportTable::Add(const AnalyzedReport& report, size_t width) {
  std::vector<Column> columns = Columns(report);
  const auto total = [&](size_t gap) {
    std::vector<size_t> widths;
    for (const Column& column : columns) widths.push_back(column.width);
    return TotalWidth(widths, gap);
  };
  const size_t gap = total(2) <= width ? 2 : 1;
  while (total(gap) > width) {
    const auto last =
        std::max_element(columns.begin(), columns.end(),
                         [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (last->rank == 0) break;
    columns.erase(last);
  }
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.push_back(column.title);
  Lines lines{std::nullopt, Render(columns, gap, width, false)};
  if (titles != shown_) lines.header = Render(columns, gap, width, true);
  shown_ = std::move(titles);
  return lines;
}

}  // namespace ptqwatch::internal
