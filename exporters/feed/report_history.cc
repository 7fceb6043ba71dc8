#include "feed/report_history.h"

#include <algorithm>
#include <utility>

namespace ptqwatch::internal {

void ReportHistory::Append(WireReport report) {
  Entry entry;
  entry.sequence = report.sequence;
  for (SharedBytes& bytes : report.forms) {
    const size_t size = bytes->size();
    entry.size += static_cast<int64_t>(size);
    entry.forms.push_back({std::move(bytes), size});
  }
  bytes_ += entry.size;
  memory_bytes_ += entry.size;
  reports_.push_back(std::move(entry));
  while (reports_.size() > 1 && (reports_.size() > limits_.reports || bytes_ > limits_.bytes)) {
    DropOldest();
  }
  while (memory_bytes_ > limits_.memory_bytes && spilled_ + 1 < reports_.size()) SpillOldest();
}

void ReportHistory::DropOldest() {
  const Entry& oldest = reports_.front();
  bytes_ -= oldest.size;
  if (spilled_ > 0) {
    --spilled_;
    if (oldest.offset >= 0) file_.Forget(oldest.offset, oldest.size);
  } else {
    memory_bytes_ -= oldest.size;
  }
  reports_.pop_front();
}

// If the file cannot be written, the report is lost, because memory must stay limited.
void ReportHistory::SpillOldest() {
  Entry& entry = reports_[spilled_++];
  memory_bytes_ -= entry.size;
  std::vector<SharedBytes> pieces;
  for (Form& form : entry.forms) pieces.push_back(std::move(form.bytes));
  entry.offset = file_.Append(pieces);
}

int64_t ReportHistory::After(int64_t sequence) const {
  const size_t index = IndexAfter(sequence);
  return index < reports_.size() ? reports_[index].sequence : 0;
}

SharedBytes ReportHistory::Bytes(int64_t sequence, size_t form) const {
  const size_t index = IndexAfter(sequence - 1);
  const Entry& entry = reports_[index];
  if (index >= spilled_) return entry.forms[form].bytes;
  if (entry.offset < 0) return nullptr;
  int64_t offset = entry.offset;
  for (size_t before = 0; before < form; ++before) {
    offset += static_cast<int64_t>(entry.forms[before].size);
  }
  return file_.Read(offset, entry.forms[form].size);
}

size_t ReportHistory::IndexAfter(int64_t sequence) const {
  const auto found =
      std::partition_point(reports_.begin(), reports_.end(),
                           [sequence](const Entry& entry) { return entry.sequence <= sequence; });
  return static_cast<size_t>(found - reports_.begin());
}

}  // namespace ptqwatch::internal
