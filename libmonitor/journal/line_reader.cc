#include "journal/line_reader.h"

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "journal/report_line.h"

namespace ptqwatch::internal {
namespace {

// Larger numbers are damage, too: the next attempt would continue from them.
constexpr int kMaxAttempt = 1'000'000;
constexpr int64_t kMaxSequence = int64_t{1} << 53;

bool InRange(const Report& report) {
  return report.attempt >= 0 && report.attempt <= kMaxAttempt && report.sequence >= 0 &&
         report.sequence <= kMaxSequence;
}

}  // namespace

void LineReader::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    Extend(bytes.substr(0, newline));
    if (newline == std::string_view::npos) return;
    EndLine();
    bytes.remove_prefix(newline + 1);
  }
}

void LineReader::Extend(std::string_view piece) {
  if (too_long_) return;
  if (line_.size() + piece.size() > kMaxLineBytes) {
    too_long_ = true;
    std::string().swap(line_);
    return;
  }
  line_.append(piece);
}

void LineReader::EndLine() {
  const std::string line = std::exchange(line_, {});
  if (std::exchange(too_long_, false)) return handlers_.unreadable();
  if (line.find_first_not_of(" \t\r") == std::string::npos) return;
  if (IsEventJson(line)) {
    if (!handlers_.event) return;
    // An event kind of a later version is no damage.
    if (const absl::StatusOr<Event> event = EventFromJson(line); event.ok())
      handlers_.event(*event);
    return;
  }
  absl::StatusOr<AnalyzedReport> report = FromJson(line);
  if (report.ok() && InRange(report->report)) return handlers_.report(*std::move(report));
  handlers_.unreadable();
}

}  // namespace ptqwatch::internal
