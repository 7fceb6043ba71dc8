#ifndef PTQWATCH_PROBES_SLICE_PROBE_H_
#define PTQWATCH_PROBES_SLICE_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "monitor/slice_desk.h"
#include "probes/measurement.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Makes the slices that are asked for at a desk: keeps the weights of one snapshot and measures at
/// the next one, over all floating-point parameters (buffers stay those of the second), on the
/// curvature batches. Monitor thread's own.
class SliceProbe {
 public:
  using Announce = absl::FunctionRef<void(Severity severity, std::string message)>;

  /// Opens the desk, or closes it with the reason why this monitor makes no slices. Both pointers
  /// must outlive the probe.
  SliceProbe(SliceDesk* desk, Measurement* measurement, std::string run_dir);

  /// Once a snapshot, when its report is out and it is still loaded. `ordinal`: of the snapshots
  /// taken, from 1. `quantized` as Measurement::Run gives it. Where the snapshot is the second of a
  /// slice, writes <run_dir>/slice-<step>.json; failures go to the desk. Never throws.
  void Run(const Report& report, int64_t ordinal,
           std::vector<std::vector<Replica::Override>> quantized, Announce announce,
           const ExecutionContext& context);

 private:
  void KeepWeights(int64_t step);
  absl::StatusOr<std::string> Make(const Report& report,
                                   std::vector<std::vector<Replica::Override>> quantized,
                                   const SliceRequest& request, const ExecutionContext& context);

  SliceDesk* const desk_;
  Measurement* const measurement_;
  const std::string run_dir_;
  std::vector<Replica::Override> previous_;
  int64_t previous_step_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_SLICE_PROBE_H_
