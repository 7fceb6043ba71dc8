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

struct QuantizedLoss {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  std::optional<std::string> format;
  double loss_nats = 0;
};

/// One snapshot as remembered by the analysis.
struct Point {
  int64_t sequence = 0;
  int64_t step = 0;
  double log_step = 0;
  double learning_rate = 0;
  /// 1 - learning rate / plateau: 0 on the plateau, 1 at the end of a decay to zero.
  double decayed = 0;
  bool rising = false;   ///< during a warm-up, first or later
  bool falling = false;  ///< in a decay, according to the learning-rate phase
  std::optional<double> loss_nats;
  std::vector<QuantizedLoss> quantized;
  SeriesValues series;
  std::optional<WatchedSeries> watched;
  std::string digest;  ///< of the parameters; empty if unknown
  // Conclusions at this snapshot.
  VerdictState state = VerdictState::kUnknown;
  std::optional<int64_t> onset_step;  ///< of the current alarm or recovery
  std::optional<int64_t> loss_converged_step;
};

/// The snapshots of a series, by ascending step. Beyond 1,024, every second snapshot of the older
/// half is dropped unless the baseline uses it. Other tokens shift the level of a series, so the
/// watched quantizer's series is on all sets of probe batches if every snapshot has them, and
/// otherwise on the first set. The first snapshot, which may be small, need not have all sets, and
/// is then left out.
class History {
 public:
  /// Adds a report and returns its index. If its step is not above the newest one and it was
  /// measured later (a rollback), snapshots from that step on are removed; if it was measured
  /// earlier (it came late), or comes from a checkpoint, it is inserted. Another fingerprint or
  /// other quantizers start a new series; a report without any, because its snapshot could not be
  /// measured, does not.
  size_t Add(const Report& report);

  const std::vector<Point>& points() const { return points_; }
  Point& at(size_t index) { return points_[index]; }

  /// The plateau snapshots before `end`, oldest first, without the warm-up, its aftermath and
  /// snapshots in an alarm. If the schedule has no plateau, its first part.
  std::vector<size_t> Plateau(size_t end) const;
  /// For each snapshot, whether it is part of an alarm, even if the alarm was recognised later.
  std::vector<bool> Alarmed() const;
  /// The step since which the parameters of the newest snapshots have not changed by a single bit,
  /// despite steps at a positive learning rate. nullopt with fewer than three such snapshots.
  std::optional<int64_t> StillSince() const;
  /// Discards measurements of snapshots after `step`, which only repeat an earlier one.
  void ForgetMeasuredSince(int64_t step);
  /// Largest `decayed` of a plateau snapshot.
  double PlateauLimit(size_t end) const;

 private:
  size_t ThinOut(size_t added);
  double PlateauRate() const;
  void FindDecayed();
  /// Gives `added` its value of the watched series, or all points if the choice of tokens changes.
  void ChooseTokens(Point& added);
  std::vector<size_t> Candidates(size_t end, double limit) const;

  std::string fingerprint_;
  std::string quantizers_;
  std::vector<Point> points_;
  bool pooled_ = false;  // the watched series is that on all sets of probe batches
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_HISTORY_H_
