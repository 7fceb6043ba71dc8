#include "report_history.h"

#include <algorithm>
#include <utility>

namespace ptqwatch::internal {

void ReportHistory::Append(WireReport report) {
  Entry entry{.report = std::move(report)};
  entry.full_size = entry.report.full.size();
  entry.without_layers_size = entry.report.without_layers.size();
  bytes_ += entry.size();
  memory_bytes_ += entry.size();
  reports_.push_back(std::move(entry));
  while (reports_.size() > 1 && (reports_.size() > limits_.reports || bytes_ > limits_.bytes)) {
    DropOldest();
  }
  while (memory_bytes_ > limits_.memory_bytes && spilled_ + 1 < reports_.size()) SpillOldest();
}

void ReportHistory::DropOldest() {
  const Entry& oldest = reports_.front();
  bytes_ -= oldest.size();
  if (spilled_ > 0) {
    --spilled_;
    if (oldest.offset >= 0) file_.Forget(oldest.offset, oldest.size());
  } else {
    memory_bytes_ -= oldest.size();
  }
  reports_.pop_front();
}

// Without a file it is lost all the same: memory is what must not run out.
void ReportHistory::SpillOldest() {
  Entry& entry = reports_[spilled_++];
  memory_bytes_ -= entry.size();
  entry.offset = file_.Append({entry.report.full, entry.report.without_layers});
  entry.report.full = grpc::Slice();
  entry.report.without_layers = grpc::Slice();
}

int64_t ReportHistory::After(int64_t sequence) const {
  const size_t index = IndexAfter(sequence);
  return index < reports_.size() ? reports_[index].report.sequence : 0;
}

grpc::Slice ReportHistory::Bytes(int64_t sequence, bool with_layers) const {
  const size_t index = IndexAfter(sequence - 1);
  const Entry& entry = reports_[index];
  if (index >= spilled_) return with_layers ? entry.report.full : entry.report.without_layers;
  if (entry.offset < 0) return grpc::Slice();
  const int64_t skipped = with_layers ? 0 : static_cast<int64_t>(entry.full_size);
  return file_.Read(entry.offset + skipped,
                    with_layers ? entry.full_size : entry.without_layers_size);
}

size_t ReportHistory::CountAfter(int64_t sequence) const {
  return reports_.size() - IndexAfter(sequence);
}

int64_t ReportHistory::SequenceBefore(size_t count) const {
  return reports_[reports_.size() - count - 1].report.sequence;
}

size_t ReportHistory::IndexAfter(int64_t sequence) const {
  const auto found = std::partition_point(
      reports_.begin(), reports_.end(),
      [sequence](const Entry& entry) { return entry.report.sequence <= sequence; });
  return static_cast<size_t>(found - reports_.begin());
}

}  // namespace ptqwatch::internal
