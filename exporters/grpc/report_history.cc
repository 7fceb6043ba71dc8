#include "report_history.h"

#include <algorithm>
#include <utility>

namespace ptqwatch::internal {

void ReportHistory::Append(WireReport report) {
  bytes_ += report.size();
  reports_.push_back(std::move(report));
  while (reports_.size() > 1 && (reports_.size() > max_reports_ || bytes_ > max_bytes_)) {
    bytes_ -= reports_.front().size();
    reports_.pop_front();
  }
}

const WireReport* ReportHistory::After(int64_t sequence) const {
  const size_t index = IndexAfter(sequence);
  return index < reports_.size() ? &reports_[index] : nullptr;
}

size_t ReportHistory::CountAfter(int64_t sequence) const {
  return reports_.size() - IndexAfter(sequence);
}

int64_t ReportHistory::SequenceBefore(size_t count) const {
  return reports_[reports_.size() - count - 1].sequence;
}

size_t ReportHistory::IndexAfter(int64_t sequence) const {
  const auto found = std::partition_point(
      reports_.begin(), reports_.end(),
      [sequence](const WireReport& report) { return report.sequence <= sequence; });
  return static_cast<size_t>(found - reports_.begin());
}

}  // namespace ptqwatch::internal
