#ifndef PTQWATCH_TOOLS_PTQWATCH_WATCH_STATE_H_
#define PTQWATCH_TOOLS_PTQWATCH_WATCH_STATE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "journal_tables.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// The values of a report that sparklines show. NaN: not measured.
struct TrendPoint {
  int64_t step = 0;
  LrPhase phase = LrPhase::kUnknown;
  double learning_rate = 0;
  double loss = 0;
  double trace = 0;
  double top_eigenvalue = 0;
  std::map<std::string, double> error_ratios;  ///< by QuantizerNames
};

struct TimedText {
  double unix_seconds = 0;
  std::string text;
};

/// Everything that the full-screen view shows. Not thread-safe.
struct WatchState {
  static constexpr size_t kMaxPoints = 512;
  static constexpr size_t kMaxEvents = 64;

  std::string target;
  double now_unix_seconds = 0;
  std::optional<RunStatus> status;
  std::optional<double> steps_per_second;
  double silence_seconds = 0;  ///< since the last status
  /// Time when the connection was lost; unset while connected.
  std::optional<double> lost_unix_seconds;
  bool paused = false;  ///< the view was paused by a key

  std::deque<TrendPoint> points;  ///< by rising step
  std::optional<AnalyzedReport> newest;
  /// The newest measured curvature: not every snapshot has one.
  std::optional<CurvatureReport> curvature;
  std::vector<LayerRow> layers;  ///< worst first
  int64_t layers_step = 0;
  std::deque<TimedText> events;  ///< newest first

  /// Adds the next report. If it went back in steps, it replaces the reports after it.
  void Add(AnalyzedReport report);
  void AddEvent(TimedText event);
  /// Forgets data of a run that no longer exists.
  void ForgetRun();
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_WATCH_STATE_H_
