#include "trajectory/report_part.h"

#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"
#include "journal/report_line.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kPartPrefix = "part-";
constexpr std::string_view kPartSuffix = ".jsonl";

}  // namespace

std::string PartPath(const std::string& run_dir, int64_t number) {
  return StrCat(run_dir, "/", kPartPrefix, number, kPartSuffix);
}

absl::Status WritePart(const std::string& path, const Report& report) {
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, 0600));
  PTQWATCH_RETURN_IF_ERROR(
      file.Append(StrCat(ReportLine({.report = report, .verdict = {}}), "\n")));
  return file.Commit();
}

absl::StatusOr<ReportPart> ReadPart(const std::string& path) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::string line, ReadTextFile(path));
  absl::StatusOr<AnalyzedReport> read = FromJson(line);
  if (!read.ok()) {
    return absl::Status(read.status().code(), StrCat(Quoted(path), ": ", read.status()));
  }
  return ReportPart{.path = path, .report = std::move(read->report)};
}

absl::StatusOr<ReportParts> ReadParts(const std::string& run_dir) {
  ReportParts parts;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(run_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPartPrefix) || !name.ends_with(kPartSuffix)) continue;
    PTQWATCH_ASSIGN_OR_RETURN(ReportPart part, ReadPart(entry->path().string()));
    const std::pair place(part.report.branch.value_or(""), part.report.step);
    parts.insert_or_assign(place, std::move(part));
  }
  return parts;
}

}  // namespace ptqwatch::internal
