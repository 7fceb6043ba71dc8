#include "plot_script.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/nearest_name.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "ptqwatch/verdict.h"
#include "report_table.h"

namespace ptqwatch::internal {
namespace {

// Okabe and Ito's, which people tell apart who see colors differently. The first is the text's.
constexpr std::array<const char*, 7> kColors = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                "#E69F00", "#56B4E9", "#999933"};
// Above this ratio of the largest to the smallest a logarithmic axis says more.
constexpr double kWide = 30;
constexpr size_t kFewPoints = 60;  // which are marked each

// In single quotes gnuplot expands nothing.
std::string Text(std::string_view text) {
  return StrCat("'", absl::StrReplaceAll(Printable(text), {{"'", "''"}}), "'");
}

std::string Number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? StrFormat("%.9g", *value) : "NaN";
}

const QuantizationReport* Find(const Report& report, const std::string& name) {
  const std::vector<std::string> names = QuantizerNames(report.quantization);
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? nullptr
                              : &report.quantization[static_cast<size_t>(found - names.begin())];
}

// In display order.
std::vector<std::string> AllQuantizers(const std::vector<PlottedRun>& runs) {
  std::vector<std::string> all;
  for (const PlottedRun& run : runs) {
    for (const AnalyzedReport& analyzed : run.reports) {
      const std::vector<QuantizationReport>& entries = analyzed.report.quantization;
      const std::vector<std::string> names = QuantizerNames(entries);
      for (const size_t i : QuantizerOrder(entries)) {
        if (std::count(all.begin(), all.end(), names[i]) == 0) all.push_back(names[i]);
      }
    }
  }
  return all;
}

absl::StatusOr<std::vector<std::string>> Choose(const std::vector<PlottedRun>& runs,
                                                const PlotOptions& options) {
  std::vector<std::string> all = AllQuantizers(runs);
  for (const std::string& name : options.quantizers) {
    if (std::count(all.begin(), all.end(), name) > 0) continue;
    const std::vector<std::string_view> views(all.begin(), all.end());
    return absl::NotFoundError(all.empty()
                                   ? StrCat("quantizer ", Quoted(name), ": no report has any")
                                   : StrCat("quantizer ", Quoted(name), ": the reports have ",
                                            absl::StrJoin(all, ", "), "; did you mean ",
                                            NearestName(name, views), "?"));
  }
  if (!options.quantizers.empty()) return options.quantizers;
  if (runs.size() > 1 && all.size() > 1) all.resize(1);
  return all;
}

// Lines of numbers that plots refer to as `$name`.
std::string Data(const std::string& name, const PlottedRun& run,
                 const std::function<std::vector<std::optional<double>>(const Report&)>& columns) {
  std::string data = StrCat("$", name, " << EOD\n");
  int64_t last = std::numeric_limits<int64_t>::min();
  for (const AnalyzedReport& analyzed : run.reports) {
    // A resumed run measures steps again: a line of its own.
    if (analyzed.report.step <= last) data += "\n";
    last = analyzed.report.step;
    data += StrCat(analyzed.report.step);
    for (const auto& value : columns(analyzed.report)) data += StrCat(" ", Number(value));
    data += "\n";
  }
  return StrCat(data, "EOD\n");
}

std::vector<std::optional<double>> OfRun(const Report& report) {
  const CurvatureReport none;
  const CurvatureReport& curvature = report.curvature ? *report.curvature : none;
  const double spread = 2 * curvature.trace_stderr.value_or(0);
  const double trace = curvature.trace.value_or(std::nan(""));
  return {report.probe_loss_nats, report.learning_rate, trace,
          trace - spread,         trace + spread,       curvature.top_eigenvalue};
}

// In percent, with its standard error.
struct Increase {
  std::optional<double> percent;
  double stderr_percent = 0;
};
Increase IncreaseOf(const Report& report, const QuantizationReport& entry) {
  if (entry.error_ratio) {
    return {100 * *entry.error_ratio, 100 * entry.error_ratio_stderr.value_or(0)};
  }
  // Journals of other programs may have the difference alone.
  if (!entry.delta_nats || !report.probe_loss_nats || *report.probe_loss_nats <= 0) return {};
  const double scale = 100 / *report.probe_loss_nats;
  return {scale * *entry.delta_nats, scale * entry.delta_stderr_nats.value_or(0)};
}

std::vector<std::optional<double>> OfQuantizer(const Report& report, const std::string& name) {
  const QuantizationReport* entry = Find(report, name);
  if (entry == nullptr) return {{}, {}, {}, {}};
  const auto [percent, stderr_percent] = IncreaseOf(report, *entry);
  const double value = percent.value_or(std::nan(""));
  return {entry->loss_nats, value, value - 2 * stderr_percent, value + 2 * stderr_percent};
}

// The extremes of column `column`, where anything is finite.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool any() const { return low <= high; }
  bool wide() const { return low > 0 && high > kWide * low; }
  void Add(const std::optional<double>& value) {
    if (!value || !std::isfinite(*value)) return;
    low = std::min(low, *value);
    high = std::max(high, *value);
  }
};

class Script {
 public:
  Script(const std::vector<PlottedRun>& runs, const PlotOptions& options,
         std::vector<std::string> quantizers)
      : runs_(runs), options_(options), quantizers_(std::move(quantizers)) {}

  std::string Write() {
    Measure();
    for (size_t r = 0; r < runs_.size(); ++r) {
      text_ += Data(StrCat("run", r), runs_[r], OfRun);
      for (size_t q = 0; q < quantizers_.size(); ++q) {
        text_ += Data(StrCat("run", r, "q", q), runs_[r],
                      [&](const Report& report) { return OfQuantizer(report, quantizers_[q]); });
      }
    }
    Style();
    Marks();
    const std::vector<void (Script::*)()> panels = Panels();
    text_ += StrCat("set multiplot layout ", panels.size(), ",1 margins 0.075,", 1 - KeyShare(),
                    ",0.06,0.95 spacing 0,0.025 title ", Text(Title()), color(), "\n");
    for (const auto& panel : panels) {
      // The steps stand below the last one.
      text_ += panel == panels.back()
                   ? StrCat("set format x '%.0f'\nset xlabel 'step'", color(), "\n")
                   : std::string("set format x ''\nunset xlabel\n");
      (this->*panel)();
      text_ += "unset label\n";  // they are on the first one
    }
    return StrCat(text_, "unset multiplot\n");
  }

 private:
  const char* foreground() const { return options_.dark ? "#e6e6e6" : "#202020"; }
  const char* background() const { return options_.dark ? "#16181d" : "#ffffff"; }
  std::string color() const { return StrCat(" textcolor rgb '", foreground(), "'"); }
  bool one_run() const { return runs_.size() == 1; }

  std::string Title() const {
    std::vector<std::string> names;
    for (const PlottedRun& run : runs_) names.push_back(run.name);
    return absl::StrJoin(names, ", ");
  }
  // Of the width, for the names of the series.
  double KeyShare() const {
    constexpr double kCharacter = 7.5;  // pixels, about
    size_t longest = 0;
    for (const PlottedRun& run : runs_) longest = std::max(longest, run.name.size());
    const size_t name = std::string_view("full precision").size() + (one_run() ? 0 : longest + 1);
    const double share = (kCharacter * static_cast<double>(name) + 60) / options_.width;
    return std::min(share, 0.4);
  }
  // Of one run a color is a quantizer's, of several a run's.
  std::string Stroke(size_t run, size_t quantizer) const {
    const size_t color = one_run() ? quantizer : run;
    return StrCat(" lw 2 lc rgb '", kColors[color % kColors.size()], "' dt ",
                  one_run() ? 1 : quantizer % 5 + 1);
  }
  std::string Name(size_t run, const std::string& what) const {
    return Text(one_run() ? what : StrCat(runs_[run].name, " ", what));
  }
  const char* Lines(size_t run) const {
    return runs_[run].reports.size() <= kFewPoints ? " with linespoints pt 7 ps 0.4"
                                                   : " with lines";
  }

  void Measure() {
    for (const PlottedRun& run : runs_) {
      for (const AnalyzedReport& analyzed : run.reports) {
        const Report& report = analyzed.report;
        steps_.Add(static_cast<double>(report.step));
        loss_.Add(report.probe_loss_nats);
        rate_.Add(report.learning_rate);
        if (report.curvature) trace_.Add(report.curvature->trace);
        if (report.curvature) top_.Add(report.curvature->top_eigenvalue);
        for (const std::string& name : quantizers_) {
          if (const auto* entry = Find(report, name))
            error_.Add(IncreaseOf(report, *entry).percent);
        }
      }
    }
  }

  void Style() {
    text_ +=
        StrCat("set terminal ", options_.format == PlotFormat::kSvg ? "svg dynamic" : "pngcairo",
               " size ", options_.width, ",", options_.height, " noenhanced font 'sans,",
               options_.format == PlotFormat::kSvg ? 13 : 10, "' background rgb '", background(),
               "'\nset encoding utf8\nset border 3 lc rgb '", foreground(), "'\nset tics nomirror",
               color(), "\nset grid lc rgb '", options_.dark ? "#3a3d45" : "#dddddd",
               "' lt 1 lw 0.5\nset xlabel", color(), "\nset ylabel", color(),
               " offset 1\nset y2label", color(), "\nset key at screen ", 1 - KeyShare() + 0.01,
               ", graph 1 left top Left reverse samplen 2", color(), "\n");
    const double margin = steps_.low < steps_.high ? 0 : 1;
    text_ += StrCat("set xrange [", Number(steps_.low - margin), ":", Number(steps_.high + margin),
                    "]\n");
  }

  void Marks() {
    int object = 0;
    for (size_t r = 0; r < runs_.size(); ++r) {
      const std::vector<AnalyzedReport>& reports = runs_[r].reports;
      // Those of several runs would lie over each other.
      for (size_t i = 1; one_run() && i < reports.size(); ++i) {
        const LrPhase phase = reports[i].report.lr_phase;
        if (phase != LrPhase::kDecay && phase != LrPhase::kSlowDecay) continue;
        text_ += StrCat("set object ", ++object, " rect from ", reports[i - 1].report.step,
                        ", graph 0 to ", reports[i].report.step,
                        ", graph 1 behind fc rgb '#E69F00' fs transparent solid ",
                        phase == LrPhase::kDecay ? "0.14" : "0.06", " noborder\n");
      }
      const auto alarm = std::find_if(reports.begin(), reports.end(), [](const auto& report) {
        return IsAlarm(report.verdict.state);
      });
      if (alarm == reports.end()) continue;
      const char* const color = one_run() ? "#D55E00" : kColors[r % kColors.size()];
      const std::optional<int64_t> onset = alarm->verdict.onset_step;
      const bool same = onset == alarm->report.step;
      Mark(alarm->report.step, same ? "onset, alarm" : "alarm", color, 1);
      if (onset && !same) Mark(*onset, "onset", color, 2);
    }
  }
  void Mark(int64_t step, const char* name, const char* color, int dash) {
    text_ +=
        StrCat("set arrow from ", step, ", graph 0 to ", step, ", graph 1 nohead lw 1.2 lc rgb '",
               color, "' dt ", dash, "\nset label '", name, "' at ", step,
               ", graph 0.97 rotate by 90 right offset -0.7,0 textcolor rgb '", color, "' front\n");
  }

  std::vector<void (Script::*)()> Panels() const {
    std::vector<void (Script::*)()> panels;
    if (loss_.any()) panels.push_back(&Script::Losses);
    if (error_.any()) panels.push_back(&Script::Errors);
    if (trace_.any() || top_.any()) panels.push_back(&Script::Curvature);
    if (rate_.any() || panels.empty()) panels.push_back(&Script::Rate);
    return panels;
  }

  void Plot(const std::vector<std::string>& series) {
    text_ += StrCat("plot ", absl::StrJoin(series, ", \\\n     "), "\n");
  }

  void Losses() {
    text_ += "set ylabel 'loss (nats per token)'\n";
    std::vector<std::string> series;
    for (size_t r = 0; r < runs_.size(); ++r) {
      series.push_back(StrCat("$run", r, " using 1:2", Lines(r), " lw 2.5 lc rgb '",
                              one_run() ? foreground() : kColors[r % kColors.size()], "' title ",
                              Name(r, "full precision")));
      for (size_t q = 0; one_run() && q < quantizers_.size(); ++q) {
        series.push_back(StrCat("$run", r, "q", q, " using 1:2", Lines(r), Stroke(r, q), " title ",
                                Name(r, quantizers_[q])));
      }
    }
    Plot(series);
  }

  void Errors() {
    text_ += "set ylabel 'loss increase E (%)'\n";
    std::vector<std::string> series;
    for (size_t r = 0; r < runs_.size(); ++r) {
      for (size_t q = 0; q < quantizers_.size(); ++q) {
        const std::string data = StrCat("$run", r, "q", q);
        series.push_back(StrCat(data, " using 1:4:5 with filledcurves fs transparent solid 0.2",
                                " noborder", Stroke(r, q), " notitle"));
        series.push_back(
            StrCat(data, " using 1:3", Lines(r), Stroke(r, q), " title ", Name(r, quantizers_[q])));
      }
    }
    Plot(series);
  }

  void Curvature() {
    const char* const first = trace_.any() ? "trace of the Hessian" : "top eigenvalue";
    text_ += StrCat("set ylabel '", first, "'\n", trace_.wide() ? "set logscale y\n" : "",
                    trace_.any() && top_.any() ? "set y2tics\nset y2label 'top eigenvalue'\n" : "",
                    top_.wide() ? "set logscale y2\n" : "");
    std::vector<std::string> series;
    for (size_t r = 0; r < runs_.size(); ++r) {
      const std::string run = StrCat("$run", r);
      if (trace_.any()) {
        series.push_back(StrCat(run, " using 1:5:6 with filledcurves fs transparent solid 0.2",
                                " noborder", Stroke(r, 0), " notitle"));
        series.push_back(
            StrCat(run, " using 1:4", Lines(r), Stroke(r, 0), " title ", Name(r, "trace")));
      }
      if (top_.any()) {
        series.push_back(StrCat(run, " using 1:7", trace_.any() ? " axes x1y2" : "", Lines(r),
                                Stroke(r, 1), " title ", Name(r, "top eigenvalue")));
      }
    }
    Plot(series);
    text_ += "unset logscale\nunset y2tics\nunset y2label\n";
  }

  void Rate() {
    text_ += "set ylabel 'learning rate'\nset format y '%g'\n";
    std::vector<std::string> series;
    for (size_t r = 0; r < runs_.size(); ++r) {
      series.push_back(StrCat("$run", r, " using 1:3 with lines", Stroke(r, 0), " title ",
                              Name(r, "learning rate")));
    }
    Plot(series);
  }

  const std::vector<PlottedRun>& runs_;
  const PlotOptions& options_;
  const std::vector<std::string> quantizers_;
  Range steps_, loss_, error_, rate_, trace_, top_;
  std::string text_;
};

}  // namespace

absl::StatusOr<std::string> PlotScript(const std::vector<PlottedRun>& runs,
                                       const PlotOptions& options) {
  for (const PlottedRun& run : runs) {
    if (run.reports.empty()) {
      return absl::NotFoundError(StrCat("the journal of ", Quoted(run.name), " has no report"));
    }
  }
  absl::StatusOr<std::vector<std::string>> quantizers = Choose(runs, options);
  if (!quantizers.ok()) return quantizers.status();
  return Script(runs, options, *std::move(quantizers)).Write();
}

}  // namespace ptqwatch::internal
