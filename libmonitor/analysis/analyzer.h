#ifndef PTQWATCH_ANALYSIS_ANALYZER_H_
#define PTQWATCH_ANALYSIS_ANALYZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "analysis/change.h"
#include "analysis/history.h"
#include "ptqwatch/report.h"
#include "ptqwatch/verdict_options.h"

namespace ptqwatch::internal {

/// Turns a series of reports into verdicts. Deterministic: the reports of a journal reproduce the
/// journal's verdicts.
///
/// Every series of quantization error and curvature has its own baseline, fitted to the snapshots
/// of the plateau (baseline.h). While the learning rate is high, the analyzer looks for a jump at
/// one of the last eight snapshots; while it falls, for a rise in proportion to the lost learning
/// rate. docs/verdicts.md derives both and gives their error rates.
class Analyzer {
 public:
  explicit Analyzer(const VerdictOptions& options = {}) : options_(options) {}

  /// Adds a report and judges the newest report of the series, which is a different one if this one
  /// came late.
  Verdict Add(const Report& report);

  /// The step since which the parameters have not changed although training goes on, or nullopt.
  /// Verdicts are unknown while this lasts.
  std::optional<int64_t> still_since() const { return still_since_; }

 private:
  struct Finding;
  Verdict Judge(const Report& report);
  Finding Find() const;
  double Needed(double decayed, size_t reference) const;
  /// Carries the state over a snapshot without measurements, so that an alarm outlasts it.
  void KeepState(size_t index);
  VerdictState StateOf(const Finding& finding) const;
  bool Drifts(const Finding& finding) const;
  static std::string Reason(const Finding& finding);
  void SetOnset(const Finding& finding, Verdict& verdict) const;
  /// As the verdict before the report at `added` has it.
  std::optional<int64_t> LossConvergedBefore(size_t added) const;
  void Describe(const Finding& finding, Verdict& verdict) const;

  VerdictOptions options_;
  History history_;
  std::optional<int64_t> still_since_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_ANALYZER_H_
