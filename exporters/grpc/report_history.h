#ifndef PTQWATCH_GRPC_REPORT_HISTORY_H_
#define PTQWATCH_GRPC_REPORT_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "grpcpp/support/slice.h"
#include "spill_file.h"

namespace ptqwatch::internal {

/// A v1::Report in its wire form. Slices are counted references: copying one shares its bytes.
struct WireReport {
  int64_t sequence = 0;
  grpc::Slice full;
  grpc::Slice without_layers;
};

/// The newest reports in the order of their sequences, limited in number and bytes. The newest one
/// is always kept. Beyond `memory_bytes` the older ones lie in a temporary file. Not thread-safe.
class ReportHistory {
 public:
  struct Limits {
    size_t reports = 1024;  ///< more than 0
    int64_t bytes = int64_t{64} << 20;
    int64_t memory_bytes = int64_t{64} << 20;
  };
  explicit ReportHistory(const Limits& limits) : limits_(limits) {}

  /// REQUIRES: a sequence above newest().
  void Append(WireReport report);
  /// The sequence of the oldest report with one above `sequence`; 0 where there is none.
  int64_t After(int64_t sequence) const;
  /// The report with this sequence. Empty where its file cannot be read any more. REQUIRES: After
  /// has named it since the last Append.
  grpc::Slice Bytes(int64_t sequence, bool with_layers) const;
  /// How many reports have a sequence above `sequence`.
  size_t CountAfter(int64_t sequence) const;
  /// The sequence of the report before the newest `count` ones. REQUIRES: count < size().
  int64_t SequenceBefore(size_t count) const;

  size_t size() const { return reports_.size(); }
  int64_t oldest() const { return reports_.empty() ? 0 : reports_.front().report.sequence; }
  int64_t newest() const { return reports_.empty() ? 0 : reports_.back().report.sequence; }

 private:
  struct Entry {
    WireReport report;  // without bytes once they are in the file
    size_t full_size = 0;
    size_t without_layers_size = 0;
    int64_t offset = -1;  // in the file

    int64_t size() const { return static_cast<int64_t>(full_size + without_layers_size); }
  };
  size_t IndexAfter(int64_t sequence) const;
  void DropOldest();
  void SpillOldest();

  const Limits limits_;
  int64_t bytes_ = 0;
  int64_t memory_bytes_ = 0;
  size_t spilled_ = 0;  // so many of the oldest lie in the file
  std::deque<Entry> reports_;
  SpillFile file_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_REPORT_HISTORY_H_
