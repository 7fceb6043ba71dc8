#ifndef PTQWATCH_ANALYSIS_ANALYZER_H_
#define PTQWATCH_ANALYSIS_ANALYZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "analysis/change.h"
#include "analysis/history.h"
#include "ptqwatch/offline/verdict_options.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Turns a series of reports into verdicts. Deterministic: the reports of a journal give the
/// journal's verdicts again.
///
/// Every series of quantization error and curvature has a baseline of its own, fitted to the
/// snapshots of the plateau (baseline.h). While the learning rate is high a jump at one of the last
/// eight snapshots is looked for; while it falls, a rise in proportion to what it has lost.
/// docs/verdicts.md derives both and has their error rates.
class Analyzer {
 public:
  explicit Analyzer(const VerdictOptions& options = {}) : options_(options) {}

  /// Takes the next report and judges the newest one of the series, which is another where a report
  /// comes late.
  Verdict Add(const Report& report);

  /// The step since which the parameters stand still although training goes on; nothing if they do
  /// not. While they do, verdicts are unknown.
  std::optional<int64_t> still_since() const { return still_since_; }

 private:
  struct Finding;
  Finding Find() const;
  double Needed(double decayed, size_t reference) const;
  /// Where the rise began: the snapshot since which there is most evidence for a higher level.
  Change SinceOnset(const Change& change, std::optional<int64_t> onset_step) const;
  /// An alarm outlasts a snapshot that measures nothing.
  void KeepState(size_t index);
  VerdictState StateOf(const Finding& finding) const;
  bool Drifts(const Finding& finding) const;
  void Describe(const Finding& finding, Verdict& verdict) const;

  VerdictOptions options_;
  History history_;
  std::optional<int64_t> still_since_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_ANALYZER_H_
