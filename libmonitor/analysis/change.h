#ifndef PTQWATCH_ANALYSIS_CHANGE_H_
#define PTQWATCH_ANALYSIS_CHANGE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "analysis/composite.h"
#include "analysis/history.h"

namespace ptqwatch::internal {

/// What Change::confirmed_sigmas must be for a jump to be more than one wild snapshot.
inline constexpr double kConfirmedSigmas = 1.5;

/// The evidence for a change of quantization error since the plateau.
struct Change {
  std::vector<size_t> reference;  ///< snapshots of the plateau it is compared with
  std::vector<size_t> tested;     ///< snapshots since the change, oldest first
  std::optional<Composite> errors;
  std::optional<Composite> curvatures;
  std::optional<Baseline::Change> error;
  std::optional<Baseline::Change> curvature;
  double sigmas = 0;  ///< both together
  /// Of the error, without the snapshot that shows it most; 0 where there is no other.
  double confirmed_sigmas = 0;

  double error_sigmas() const { return error ? error->sigmas : 0; }
  double curvature_sigmas() const { return curvature ? curvature->sigmas : 0; }
};

/// A rise in proportion to the learning rate that is lost, of the snapshots after the plateau's
/// last one up to the newest. nullopt where there is none, or too few snapshots of the plateau.
std::optional<Change> ChangeInDecay(const History& history);

/// A jump at a snapshot after which nothing else changed: that of the last eight snapshots for
/// which there is most evidence. nullopt as above.
std::optional<Change> Jump(const History& history);

/// A jump that all tested snapshots share, against a given plateau.
Change JumpSince(const History& history, std::vector<size_t> reference, std::vector<size_t> tested);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_CHANGE_H_
