#ifndef PTQWATCH_PROBES_WORK_SHARE_H_
#define PTQWATCH_PROBES_WORK_SHARE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Work on every snapshot that is dealt to one rank as a whole.
struct WorkItem {
  double seconds = 0;       ///< without calibration
  bool calibrates = false;  ///< needs calibration data, which a rank runs through the model once
  bool searches = false;    ///< needs the eigenvectors of the Hessian, which a rank finds once
};

/// The rank that does each item. Deals the longest item first, each to the rank that is done with
/// it earliest; the first of equals. Depends on nothing but its arguments.
std::vector<int64_t> DealWork(absl::Span<const WorkItem> items, double calibration_seconds,
                              int64_t ranks, double search_seconds = 0);

/// How a run's measurements are dealt to its ranks. A part that needs the results of another stays
/// with it: the curvature along a quantizer's error with the quantizer; the layers chosen for more
/// bits with both of their quantizers; noise with the quantizer on whose batches it is measured.
/// The exception is the search for the Hessian's eigenvectors, which all parts of curvature need:
/// each of their ranks repeats it, with the same result.
struct WorkShare {
  int64_t rank = 0;
  int64_t ranks = 1;
  // The rank that measures each part.
  std::vector<int64_t> quantizers = {};  ///< in the order of MonitorOptions::quantizers
  int64_t edge = 0;                      ///< of stability
  int64_t trace = 0;                     ///< and slices and cooldowns
  int64_t mixed_precision = 0;
  int64_t averaging = 0;  ///< and merges
  int64_t noise = 0;
  std::vector<int64_t> further_sets = {};  ///< of probe batches, without the first set

  bool Owns(int64_t owner) const { return owner == rank; }
  /// The number of this rank's quantizers.
  int64_t OwnQuantizers() const { return std::count(quantizers.begin(), quantizers.end(), rank); }
  /// Whether a part of curvature is this rank's, if the run measures curvature.
  bool OwnsCurvature() const { return Owns(edge) || Owns(trace) || OwnQuantizers() > 0; }
  /// One line for Monitor::Describe for each rank, and what it measures; empty for a rank alone.
  std::string Describe(const MonitorOptions& options) const;
};

/// The share of MonitorOptions::rank. Depends on the options, the shapes of the model and of the
/// batches, and the method table alone, so all ranks agree on it.
WorkShare ShareOfWork(const ModelSession& session, const MonitorOptions& options);

/// ProbeStatus::kOtherRank's status_detail.
std::string OwnerDetail(int64_t owner);

/// Index of the quantizer on whose probe batches noise is measured: the first of those with the
/// most bits, which needs more batches than coarser ones. REQUIRES: the list is not empty.
template <typename Quantizer>
size_t FinestQuantizer(const std::vector<Quantizer>& quantizers) {
  size_t finest = 0;
  for (size_t i = 1; i < quantizers.size(); ++i) {
    if (quantizers[i].bits > quantizers[finest].bits) finest = i;
  }
  return finest;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_WORK_SHARE_H_
