#include "journal/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "ptqwatch/event.h"

namespace ptqwatch::internal {
namespace {

// Far above any report: a longer line is damage and must not take the trainer's memory.
constexpr size_t kMaxLineBytes = size_t{16} << 20;
// So are larger numbers: the next attempt counts on from these.
constexpr int kMaxAttempt = 1'000'000;
constexpr int64_t kMaxSequence = int64_t{1} << 53;

// Cuts a stream of bytes into lines and collects their reports.
class JournalReader {
 public:
  explicit JournalReader(RunHistory& history) : history_(history) {}

  void Add(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      Extend(bytes.substr(0, newline));
      if (newline == std::string_view::npos) return;
      EndLine();
      bytes.remove_prefix(newline + 1);
    }
  }

  // A whole last line counts even without its newline.
  void End() { EndLine(); }

 private:
  void Extend(std::string_view piece) {
    if (too_long_) return;
    if (line_.size() + piece.size() > kMaxLineBytes) {
      too_long_ = true;
      std::string().swap(line_);
      return;
    }
    line_.append(piece);
  }

  void EndLine() {
    const bool blank = !too_long_ && line_.find_first_not_of(" \t\r") == std::string::npos;
    if (!blank && !IsEventJson(line_)) {
      absl::StatusOr<AnalyzedReport> report =
          too_long_ ? absl::InvalidArgumentError("too long") : FromJson(line_);
      if (report.ok() && InRange(report->report)) {
        Keep(*std::move(report));
      } else {
        ++history_.unreadable_lines;
      }
    }
    line_.clear();
    too_long_ = false;
  }

  static bool InRange(const Report& report) {
    return report.attempt >= 0 && report.attempt <= kMaxAttempt && report.sequence >= 0 &&
           report.sequence <= kMaxSequence;
  }

  void Keep(AnalyzedReport report) {
    history_.run_id = report.report.run_id;
    history_.attempts = std::max(history_.attempts, report.report.attempt);
    history_.last_sequence = std::max(history_.last_sequence, report.report.sequence);
    history_.reports.push_back(std::move(report));
  }

  RunHistory& history_;
  std::string line_;
  bool too_long_ = false;
};

}  // namespace

absl::StatusOr<RunHistory> ReadRunDirectory(const std::string& run_dir) {
  RunHistory history;
  const std::string path = StrCat(run_dir, "/", kJournalFileName);
  // A FIFO would block; a link may have been planted.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (file < 0) {
    if (errno == ENOENT) return history;
    return absl::ErrnoToStatus(errno, StrCat("cannot open journal '", path, "'"));
  }
  absl::Cleanup close_file = [file] { close(file); };

  JournalReader reader(history);
  std::string buffer(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = read(file, buffer.data(), buffer.size());
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno, StrCat("cannot read journal '", path, "'"));
    }
    reader.Add(std::string_view(buffer.data(), static_cast<size_t>(got)));
  }
  reader.End();
  return history;
}

}  // namespace ptqwatch::internal
