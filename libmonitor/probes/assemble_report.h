#ifndef PTQWATCH_PROBES_ASSEMBLE_REPORT_H_
#define PTQWATCH_PROBES_ASSEMBLE_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "probes/probe_result.h"
#include "ptqwatch/report.h"
#include "snapshot/snapshot.h"

namespace ptqwatch::internal {

/// The place of a report in its run.
struct ReportHeader {
  std::string run_id = {};
  std::optional<int64_t> rank = {};   ///< as Report::rank
  std::optional<int64_t> ranks = {};  ///< as Report::ranks
  int attempt = 1;
  std::string fingerprint = {};
  std::optional<std::string> snapshot_dtype = {};  ///< as Report::snapshot_dtype
  std::optional<double> bytes_per_token = {};      ///< as Report::bytes_per_token
  std::string snapshot_digest = {};
  std::vector<ParameterDigest> parameter_digests = {};
  int64_t sequence = 0;
  int64_t probe_state_sequence = 0;
  SnapshotHeader snapshot = {};
  double stall_seconds = 0;
  std::optional<Plan> plan = {};
};

/// Assembles the report of one snapshot from the results of probes and jobs. Fields that neither
/// fills keep their defaults.
Report AssembleReport(const ReportHeader& header, absl::Span<const ProbeResult> results,
                      absl::Span<const ResultValue> found_by_jobs = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_ASSEMBLE_REPORT_H_
