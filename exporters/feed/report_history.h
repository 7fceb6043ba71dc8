#ifndef PTQWATCH_FEED_REPORT_HISTORY_H_
#define PTQWATCH_FEED_REPORT_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "feed/shared_bytes.h"
#include "feed/spill_file.h"

namespace ptqwatch::internal {

/// A report in each of the servers' wire forms, such as with and without layers.
struct WireReport {
  int64_t sequence = 0;
  std::vector<SharedBytes> forms;  ///< never null
};

/// The newest reports in the order of their sequences, limited in number and bytes. The newest one
/// is always kept. Older reports beyond `memory_bytes` are moved to a temporary file. Not
/// thread-safe.
class ReportHistory {
 public:
  struct Limits {
    size_t reports = 1024;  ///< more than 0
    int64_t bytes = int64_t{64} << 20;
    int64_t memory_bytes = int64_t{64} << 20;
  };
  explicit ReportHistory(const Limits& limits) : limits_(limits) {}

  /// REQUIRES: report.sequence > newest().
  void Append(WireReport report);
  /// The smallest sequence above `sequence`, or 0.
  int64_t After(int64_t sequence) const;
  /// The report with this sequence, or null if its file cannot be read. REQUIRES: After returned
  /// `sequence` since the last Append; the report has that many forms.
  SharedBytes Bytes(int64_t sequence, size_t form) const;

  int64_t oldest() const { return reports_.empty() ? 0 : reports_.front().sequence; }
  int64_t newest() const { return reports_.empty() ? 0 : reports_.back().sequence; }

 private:
  struct Form {
    SharedBytes bytes;  // null if they are in the file
    size_t size = 0;
  };
  struct Entry {
    int64_t sequence = 0;
    std::vector<Form> forms;
    int64_t size = 0;
    int64_t offset = -1;  // in the file
  };
  size_t IndexAfter(int64_t sequence) const;
  void DropOldest();
  void SpillOldest();

  const Limits limits_;
  int64_t bytes_ = 0;
  int64_t memory_bytes_ = 0;
  size_t spilled_ = 0;  // number of oldest reports that are in the file
  std::deque<Entry> reports_;
  SpillFile file_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_REPORT_HISTORY_H_
