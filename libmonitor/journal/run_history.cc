#include "journal/run_history.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "base/input_file.h"
#include "base/status_macros.h"
#include "journal/journal_files.h"
#include "journal/line_reader.h"
#include "journal/report_line.h"

namespace ptqwatch::internal {
namespace {

// Limits for a resumed run, which needs its newest reports and must not wait for the rest.
constexpr int64_t kMaxHistoryBytes = int64_t{256} << 20;
constexpr size_t kMaxReports = 20'000;
constexpr size_t kChunkBytes = size_t{1} << 18;

void Keep(AnalyzedReport report, RunHistory& history) {
  history.run_id = report.report.run_id;
  history.attempts = std::max(history.attempts, report.report.attempt);
  history.last_sequence = std::max(history.last_sequence, report.report.sequence);
  LeaveLayersOut(report.report);
  for (QuantizationReport& entry : report.report.quantization) entry.loss_along = {};
  history.reports.push_back(std::move(report));
  // Erases in large steps, because each one moves all kept reports.
  if (history.reports.size() >= 2 * kMaxReports) {
    history.reports.erase(history.reports.begin(), history.reports.end() - kMaxReports);
  }
}

absl::Status ReadPart(const InputFile& file, LineReader& reader) {
  for (int64_t offset = 0;;) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::string bytes, file.ReadAt(offset, kChunkBytes));
    reader.Add(bytes);
    offset += static_cast<int64_t>(bytes.size());
    if (bytes.size() < kChunkBytes) return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<RunHistory> ReadRunHistory(const std::string& run_dir) {
  std::vector<InputFile> parts;  // newest first
  int64_t bytes = 0;
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<std::string> paths, JournalPaths(run_dir));
  for (auto path = paths.rbegin(); path != paths.rend() && bytes < kMaxHistoryBytes; ++path) {
    absl::StatusOr<InputFile> part = InputFile::Open(*path);
    if (absl::IsNotFound(part.status())) continue;
    PTQWATCH_RETURN_IF_ERROR(part.status());
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t size, part->Size());
    bytes += size;
    parts.push_back(*std::move(part));
  }
  RunHistory history;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    LineReader reader({.report = [&](AnalyzedReport report) { Keep(std::move(report), history); },
                       .event = nullptr,
                       .unreadable = [&] { ++history.unreadable_lines; }});
    PTQWATCH_RETURN_IF_ERROR(ReadPart(*part, reader));
    reader.End();
  }
  return history;
}

}  // namespace ptqwatch::internal
