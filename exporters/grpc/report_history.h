#ifndef PTQWATCH_GRPC_REPORT_HISTORY_H_
#define PTQWATCH_GRPC_REPORT_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "grpcpp/support/slice.h"

namespace ptqwatch::internal {

/// A v1::Report in its wire form. Slices are counted references: copying one shares its bytes.
struct WireReport {
  int64_t sequence = 0;
  grpc::Slice full;
  grpc::Slice without_layers;

  const grpc::Slice& Bytes(bool with_layers) const { return with_layers ? full : without_layers; }
  int64_t size() const { return static_cast<int64_t>(full.size() + without_layers.size()); }
};

/// The newest reports in the order of their sequences, limited in number and bytes. The newest one
/// is always kept. Not thread-safe.
class ReportHistory {
 public:
  /// REQUIRES: max_reports > 0.
  ReportHistory(size_t max_reports, int64_t max_bytes)
      : max_reports_(max_reports), max_bytes_(max_bytes) {}

  /// REQUIRES: a sequence above newest().
  void Append(WireReport report);
  /// The oldest report with a sequence above `sequence`; null where there is none. Valid until the
  /// next Append.
  const WireReport* After(int64_t sequence) const;
  /// How many reports have a sequence above `sequence`.
  size_t CountAfter(int64_t sequence) const;
  /// The sequence of the report before the newest `count` ones. REQUIRES: count < size().
  int64_t SequenceBefore(size_t count) const;

  size_t size() const { return reports_.size(); }
  int64_t oldest() const { return reports_.empty() ? 0 : reports_.front().sequence; }
  int64_t newest() const { return reports_.empty() ? 0 : reports_.back().sequence; }

 private:
  size_t IndexAfter(int64_t sequence) const;

  const size_t max_reports_;
  const int64_t max_bytes_;
  int64_t bytes_ = 0;
  std::deque<WireReport> reports_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_REPORT_HISTORY_H_
