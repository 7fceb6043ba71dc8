#ifndef PTQWATCH_COMMON_RUN_SUMMARY_H_
#define PTQWATCH_COMMON_RUN_SUMMARY_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::examples {

/// The reports of a run, and what they come to: the end of training against its stable phase.
/// Thread-safe.
class RunSummary {
 public:
  void Add(std::shared_ptr<const AnalyzedReport> report);

  /// One row a quantizer and one a measure of curvature. Stable: mean and standard deviation over
  /// the snapshots taken at a constant learning rate, without the first third of them, where the
  /// weights still grow into their scale. End: mean of the last two snapshots; stable ones do not
  /// count where the run ends otherwise. Lines end in '\n'.
  std::string Table() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const AnalyzedReport>> reports_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_RUN_SUMMARY_H_
