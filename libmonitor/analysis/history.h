#ifndef PTQWATCH_ANALYSIS_HISTORY_H_
#define PTQWATCH_ANALYSIS_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/series.h"
#include "ptqwatch/report.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch::internal {

/// A quantizer's loss at one snapshot.
struct QuantizedLoss {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  double loss_nats = 0;
};

/// One snapshot, as the analysis remembers it.
struct Point {
  int64_t sequence = 0;
  int64_t step = 0;
  double log_step = 0;
  double learning_rate = 0;
  /// 1 - learning rate / plateau: 0 on the plateau, 1 at the end of a decay to zero.
  double decayed = 0;
  bool rising = false;   ///< during a warm-up, first or later
  bool falling = false;  ///< in a decay, as the learning-rate phase says
  std::optional<double> loss_nats;
  std::vector<QuantizedLoss> quantized;
  SeriesValues series;
  std::string digest;  ///< of the parameters; empty if not known
  // What was concluded at this point.
  VerdictState state = VerdictState::kUnknown;
  std::optional<int64_t> onset_step;  ///< of the alarm or recovery that was on
};

/// The snapshots of a series by ascending step.
class History {
 public:
  /// Adds a report and returns its place. A report of an earlier step than the newest one cuts the
  /// series there if it was measured later (a rollback), and is put in its place if it was measured
  /// earlier (it came late). Another fingerprint, or other quantizers, start a new series.
  size_t Add(const Report& report);

  const std::vector<Point>& points() const { return points_; }
  Point& at(size_t index) { return points_[index]; }

  /// The snapshots of a plateau before `end`, without the warm-up and its aftermath and without
  /// those in an alarm, oldest first. A schedule without a plateau has its first part.
  std::vector<size_t> Plateau(size_t end) const;
  /// By place: whether an alarm was on there, be it recognised only later.
  std::vector<bool> Alarmed() const;
  /// The step since which the parameters of the newest snapshots have not changed by one bit,
  /// although steps at a positive learning rate passed; nothing with fewer than three of them.
  std::optional<int64_t> StillSince() const;
  /// Forgets what the newest snapshots measured since that step: the same once more.
  void ForgetMeasuredSince(int64_t step);
  /// Largest `decayed` of a snapshot that counts as plateau.
  double PlateauLimit(size_t end) const;

 private:
  void FindPlateauRate();
  std::vector<size_t> Candidates(size_t end, double limit) const;

  std::string key_;
  std::vector<Point> points_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_HISTORY_H_
