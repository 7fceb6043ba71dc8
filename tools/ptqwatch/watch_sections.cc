#include "watch_sections.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "printable.h"
#include "sparkline.h"
#include "status_text.h"
#include "text_table.h"
#include "verdict_text.h"

namespace ptqwatch::internal {
namespace {

using TextLines = std::vector<std::string>;

constexpr size_t kMaxLayers = 8;
constexpr size_t kMaxAdvice = 3;
constexpr double kMinShownSilenceSeconds = 5;

std::string_view If(bool color, std::string_view escape) { return color ? escape : ""; }

void AddPart(TextLines* parts, std::string text) {
  if (!text.empty()) parts->push_back(std::move(text));
}

// Puts as many parts on a line as fit.
TextLines Flow(const TextLines& parts, size_t columns) {
  TextLines lines;
  for (const std::string& part : parts) {
    const size_t width = DisplayWidth(part);
    if (lines.empty() || DisplayWidth(lines.back()) + kColumnGap + width > columns) {
      lines.emplace_back(CutToWidth(part, columns));
    } else {
      lines.back() += std::string(kColumnGap, ' ') + part;
    }
  }
  return lines;
}

std::string Title(std::string_view text, size_t columns, TextStyle style) {
  return Painted(std::string(CutToWidth(text, columns)), If(style.color, kBold));
}

void AddWrapped(TextLines* lines, std::string_view text, size_t columns,
                std::string_view color = {}) {
  for (std::string& line : Wrapped(text, columns)) {
    lines->push_back(Painted(std::move(line), color));
  }
}

std::string CostPart(const MonitorStatus& status) {
  const std::string overhead = OverheadText(status);
  return overhead.empty() ? "" : StrCat("cost ", overhead);
}

std::vector<double> Column(const WatchState& state, double TrendPoint::*member) {
  std::vector<double> values;
  for (const TrendPoint& point : state.points) values.push_back(point.*member);
  return values;
}

std::vector<double> Errors(const WatchState& state, const std::string& name) {
  std::vector<double> values;
  for (const TrendPoint& point : state.points) {
    const auto found = point.error_ratios.find(name);
    values.push_back(found == point.error_ratios.end() ? std::numeric_limits<double>::quiet_NaN()
                                                       : found->second);
  }
  return values;
}

// A name, a value, and a function that draws the rest of the line.
struct TrendRow {
  std::string name;
  std::string value;
  std::function<std::string(size_t columns)> draw;
};

TextLines TrendLines(const std::vector<TrendRow>& rows, size_t columns) {
  size_t name_width = 0, value_width = 0;
  for (const TrendRow& row : rows) {
    name_width = std::max(name_width, DisplayWidth(row.name));
    value_width = std::max(value_width, DisplayWidth(row.value));
  }
  const size_t before = name_width + value_width + 2 * kColumnGap;
  TextLines lines;
  for (const TrendRow& row : rows) {
    const std::vector<TextCell> cells = {{.text = row.name, .width = name_width, .left = true},
                                         {.text = row.value, .width = value_width}};
    lines.push_back(TextRow(cells, kColumnGap, columns));
    if (columns > before) lines.back() += std::string(kColumnGap, ' ') + row.draw(columns - before);
  }
  return lines;
}

// Paints the points since the onset in the colour of the verdict.
std::string PaintSince(const std::string& drawn, const WatchState& state, TextStyle style) {
  const Verdict& verdict = state.newest->verdict;
  const std::string_view color = If(style.color, VerdictColor(verdict.state));
  if (color.empty() || !verdict.onset_step) return drawn;
  const auto since = static_cast<size_t>(
      std::count_if(state.points.begin(), state.points.end(),
                    [&](const TrendPoint& point) { return point.step >= *verdict.onset_step; }));
  const size_t width = DisplayWidth(drawn);
  const std::string_view before = CutToWidth(drawn, width - std::min(width, since));
  return StrCat(before, Painted(drawn.substr(before.size()), color));
}

}  // namespace

TextLines RunSection(const WatchState& state, size_t columns, TextStyle style) {
  TextLines lines;
  if (!state.status) {
    AddWrapped(&lines, StrCat("connecting to ", Readable(state.target, style.utf8)), columns);
    return lines;
  }
  const MonitorStatus& status = state.status->monitor;
  const RunInfo& run = state.status->run;
  std::string name = state.status->name.empty() ? run.run_id : state.status->name;
  if (run.attempt > 1) name += StrCat(", attempt ", run.attempt);
  lines.push_back(
      Title(StrCat(Readable(name, style.utf8), " at ", Readable(state.target, style.utf8)), columns,
            style));
  TextLines parts;
  AddPart(&parts, status.step ? StrCat("step ", *status.step) : "no step yet");
  if (state.steps_per_second) {
    AddPart(&parts, StrCat(NumberText(*state.steps_per_second, 3), " steps/s"));
  }
  if (status.learning_rate) {
    AddPart(&parts, StrCat("lr ", ScientificText(*status.learning_rate, 2)));
  }
  if (status.lr_phase != LrPhase::kUnknown) {
    AddPart(&parts, StrCat("phase ", ToString(status.lr_phase)));
  }
  AddPart(&parts, StrCat("health ", ToString(status.health)));
  if (!state.newest) {
    AddPart(&parts, "no report yet");
  } else {
    const double age = state.now_unix_seconds - state.newest->report.snapshot_time_unix_seconds;
    AddPart(&parts, StrCat("report of step ", state.newest->report.step, ", ", AgoText(age)));
  }
  AddPart(&parts, CostPart(status));
  if (status.busy) AddPart(&parts, "measuring");
  if (status.paused) AddPart(&parts, "snapshots paused");
  for (std::string& line : Flow(parts, columns)) lines.push_back(std::move(line));
  const std::string_view warning = If(style.color, kRed);
  if (state.lost_unix_seconds && status.health == Health::kStopped) {
    AddWrapped(&lines, "the run has ended; waiting for the next", columns,
               If(style.color, kYellow));
  } else if (state.lost_unix_seconds) {
    AddWrapped(
        &lines,
        StrCat("no connection since ", ClockText(*state.lost_unix_seconds), " (",
               AgeText(state.now_unix_seconds - *state.lost_unix_seconds), "), trying again"),
        columns, warning);
  } else if (state.silence_seconds > kMinShownSilenceSeconds) {
    AddWrapped(&lines, StrCat("no answer for ", AgeText(state.silence_seconds)), columns, warning);
  }
  return lines;
}

TextLines VerdictSection(const WatchState& state, size_t columns, TextStyle style) {
  TextLines lines;
  if (!state.newest) return lines;
  const Verdict& verdict = state.newest->verdict;
  std::string head =
      StrCat(IsAlarm(verdict.state) ? "ALARM " : "verdict ",
             verdict.state == VerdictState::kUnknown ? "unknown" : ToString(verdict.state));
  if (verdict.onset_step) head += StrCat(" since step ", *verdict.onset_step);
  AddWrapped(&lines, head, columns, If(style.color, VerdictColor(verdict.state)));
  if (state.status && !state.status->monitor.health_reason.empty()) {
    const MonitorStatus& status = state.status->monitor;
    AddWrapped(&lines,
               StrCat("monitor ", ToString(status.health), ": ",
                      Readable(status.health_reason, style.utf8)),
               columns, If(style.color, kYellow));
  }
  AddWrapped(&lines, Readable(verdict.summary, style.utf8), columns);
  if (const std::string severity = SeverityText(verdict); !severity.empty()) {
    AddWrapped(&lines, StrCat("severity: ", severity), columns);
  }
  for (size_t i = 0; i < std::min(verdict.advice.size(), kMaxAdvice); ++i) {
    AddWrapped(&lines, StrCat("advice: ", Readable(verdict.advice[i].text, style.utf8)), columns);
  }
  return lines;
}

TextLines QuantizerSection(const WatchState& state, size_t columns, TextStyle style) {
  if (!state.newest || state.newest->report.quantization.empty()) return {};
  const std::vector<QuantizationReport>& entries = state.newest->report.quantization;
  const std::vector<std::string> names = QuantizerNames(entries);
  std::vector<TrendRow> rows;
  for (const size_t i : QuantizerOrder(entries)) {
    rows.push_back({names[i], ErrorRatioCell(entries[i], style.utf8), [&, i](size_t width) {
                      return Sparkline(Errors(state, names[i]), width, style.utf8);
                    }});
  }
  const QuantizationReport* const watched = WatchedQuantizer(*state.newest);
  TextLines lines = {Title("relative loss increase E", columns, style)};
  for (TrendRow& row : rows) {
    const bool is_watched =
        watched != nullptr && row.name == names[static_cast<size_t>(watched - entries.data())];
    if (!is_watched) continue;
    row.draw = [&state, style, draw = std::move(row.draw)](size_t width) {
      return PaintSince(draw(width), state, style);
    };
  }
  for (std::string& line : TrendLines(rows, columns)) lines.push_back(std::move(line));
  return lines;
}

TextLines TrendSection(const WatchState& state, size_t columns, TextStyle style) {
  if (!state.newest) return {};
  const Report& report = state.newest->report;
  const auto drawn = [&](double TrendPoint::*member) {
    return [&state, style, member](size_t width) {
      return Sparkline(Column(state, member), width, style.utf8);
    };
  };
  const double loss = report.probe_loss_nats.value_or(std::numeric_limits<double>::quiet_NaN());
  std::vector<TrendRow> rows = {
      {"loss", EstimateText(loss, report.probe_loss_stderr_nats, style.utf8),
       drawn(&TrendPoint::loss)},
      {"lr", RateText(report.learning_rate), drawn(&TrendPoint::learning_rate)},
      {"", "", [&](size_t width) {
         std::vector<LrPhase> phases;
         for (const TrendPoint& point : state.points) phases.push_back(point.phase);
         return PhaseLine(phases, width, style.utf8);
       }}};
  if (state.curvature) {
    rows.push_back({"trace", TraceCell(*state.curvature, style.utf8), drawn(&TrendPoint::trace)});
    rows.push_back(
        {"top eig", TopEigenvalueCell(*state.curvature), drawn(&TrendPoint::top_eigenvalue)});
  }
  TextLines lines = {Title(StrCat("last ", state.points.size(), " reports"), columns, style)};
  for (std::string& line : TrendLines(rows, columns)) lines.push_back(std::move(line));
  return lines;
}

TextLines LayerSection(const WatchState& state, size_t columns, TextStyle style) {
  if (state.layers.empty() || !state.newest) return {};
  const bool nats = state.layers.front().contribution.has_value();
  const QuantizationReport* const watched = WatchedQuantizer(*state.newest);
  std::string title = "worst layers";
  if (watched != nullptr) {
    title += StrCat(" under ", ShortName(KeyOf(*watched)));
  }
  title += StrCat(nats ? ", nats" : ", output error", ", step ", state.layers_step);
  TextLines lines = {Title(title, columns, style)};
  for (size_t i = 0; i < std::min(state.layers.size(), kMaxLayers); ++i) {
    const LayerRow& layer = state.layers[i];
    std::optional<double> value = layer.contribution;
    if (!nats && !layer.output_error_ratios.empty()) value = layer.output_error_ratios.front();
    const std::string number = !value ? "-"
                               : nats ? NumberText(*value, 3)
                                      : StrCat(NumberText(100 * *value, 3), "%");
    const std::vector<TextCell> cells = {{.text = number, .width = 9},
                                         {.text = Readable(layer.name, style.utf8), .left = true}};
    lines.push_back(TextRow(cells, kColumnGap, columns));
  }
  return lines;
}

TextLines EventSection(const WatchState& state, size_t columns, TextStyle style) {
  if (state.events.empty()) return {};
  TextLines lines = {Title("events", columns, style)};
  for (const TimedText& event : state.events) {
    const std::string text =
        StrCat(ClockText(event.unix_seconds), " ", Readable(event.text, style.utf8));
    lines.emplace_back(CutToWidth(text, columns));
  }
  return lines;
}

}  // namespace ptqwatch::internal
