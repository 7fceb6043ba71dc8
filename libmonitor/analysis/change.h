#ifndef PTQWATCH_ANALYSIS_CHANGE_H_
#define PTQWATCH_ANALYSIS_CHANGE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "analysis/composite.h"
#include "analysis/history.h"

namespace ptqwatch::internal {

/// Least Change::confirmed_sigmas of a jump, to rule out a single wild snapshot.
inline constexpr double kConfirmedSigmas = 1.5;

/// The evidence for a change of quantization error since the plateau.
struct Change {
  std::vector<size_t> reference;  ///< snapshots of the plateau to compare with
  std::vector<size_t> tested;     ///< snapshots since the change, oldest first
  std::optional<Composite> errors;
  std::optional<Composite> curvatures;
  std::optional<Baseline::Change> error;
  std::optional<Baseline::Change> curvature;
  double sigmas = 0;  ///< error and curvature together
  /// Evidence of the error without the snapshot that contributes most; 0 if there is only one, and
  /// of HigherLevel.
  double confirmed_sigmas = 0;

  double error_sigmas() const { return error ? error->sigmas : 0; }
  double curvature_sigmas() const { return curvature ? curvature->sigmas : 0; }
};

/// A rise in proportion to the lost learning rate, over the snapshots after the plateau's last one
/// up to the newest, or some 16 to 32 of more. nullopt if there are none, or too few snapshots on
/// the plateau.
std::optional<Change> ChangeInDecay(const History& history);

/// A jump at one of the last eight snapshots without any change after it: the one with the most
/// evidence. nullopt as above.
std::optional<Change> Jump(const History& history);

/// The higher level that `change` has led to: a jump at one of its tested snapshots, the one since
/// which a higher level has the most evidence.
Change HigherLevel(const Change& change);

/// Snapshots, by index.
struct Onset {
  size_t first = 0;                 ///< of the rise
  size_t earliest = 0, latest = 0;  ///< 95 % interval of `first`
};

/// Where the rise of a ChangeInDecay begins: of the ramps in proportion to the share of the
/// learning rate lost since one of its snapshots, the most likely (a hinge), with the interval of
/// the profile likelihood.
Onset OnsetInDecay(const History& history, const Change& change);

/// A jump shared by all tested snapshots, relative to a given plateau.
Change JumpSince(const History& history, std::vector<size_t> reference, std::vector<size_t> tested);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_CHANGE_H_
