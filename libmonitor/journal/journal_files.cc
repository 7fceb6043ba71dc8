#include "journal/journal_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kPrefix = "journal-";
constexpr std::string_view kSuffix = ".jsonl";

}  // namespace

int64_t OlderPartNumber(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return 0;
  if (name.size() <= kPrefix.size() + kSuffix.size()) return 0;
  const std::string digits =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  int64_t number = 0;
  const bool ours =
      absl::SimpleAtoi(digits, &number) && number > 0 && name == OlderPartName(number);
  return ours ? number : 0;
}

std::string OlderPartName(int64_t number) {
  return StrFormat("%s%06d%s", kPrefix, number, kSuffix);
}

absl::StatusOr<std::vector<std::string>> JournalPaths(const std::string& run_dir) {
  std::vector<int64_t> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(run_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const int64_t number = OlderPartNumber(entry->path().filename().string());
    if (number > 0) numbers.push_back(number);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return absl::ErrnoToStatus(error.value(), StrCat("cannot list '", run_dir, "'"));
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> paths;
  for (const int64_t number : numbers) paths.push_back(StrCat(run_dir, "/", OlderPartName(number)));
  paths.push_back(StrCat(run_dir, "/", kJournalFileName));
  return paths;
}

}  // namespace ptqwatch::internal
