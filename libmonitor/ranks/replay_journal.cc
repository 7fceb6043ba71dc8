#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "base/input_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/journal_files.h"
#include "journal/line_reader.h"
#include "journal/rank_directory.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/replay.h"
#include "ranks/rank_journals.h"

namespace ptqwatch {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 18;

// Returns the next bytes, at most a chunk; empty at the end.
using Source = std::function<absl::StatusOr<std::string>()>;

Source SourceOf(int descriptor, const std::string& path) {
  return [descriptor, path]() -> absl::StatusOr<std::string> {
    std::string bytes(kChunkBytes, '\0');
    ssize_t got = -1;
    do {
      got = read(descriptor, bytes.data(), bytes.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) return absl::ErrnoToStatus(errno, internal::StrCat("cannot read '", path, "'"));
    bytes.resize(static_cast<size_t>(got));
    return bytes;
  };
}

Source SourceOf(const internal::InputFile& file) {
  return [&file, offset = int64_t{0}]() mutable -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> bytes = file.ReadAt(offset, kChunkBytes);
    if (bytes.ok()) offset += static_cast<int64_t>(bytes->size());
    return bytes;
  };
}

// Judges, counts and passes on the reports of one journal.
class Replayer {
 public:
  Replayer(const std::function<bool(const AnalyzedReport&)>& each, const VerdictOptions& options)
      : each_(each), replay_(options) {}

  bool ended() const { return ended_; }

  // Files are separate: a truncated last line does not continue in the next file.
  absl::Status Read(const Source& next) {
    internal::LineReader reader(
        {.report = [this](AnalyzedReport report) { Add(std::move(report)); },
         .event = [this](const Event&) { ++events_; },
         .unreadable = [this] { AddUnreadable(); }});
    while (!ended_) {
      PTQWATCH_ASSIGN_OR_RETURN(const std::string bytes, next());
      if (bytes.empty()) break;
      reader.Add(bytes);
    }
    if (!ended_) reader.End();
    return absl::OkStatus();
  }

  absl::StatusOr<ReplayedJournal> End(std::string_view path) const {
    if (counts_.reports > 0) return counts_;
    std::string what = "is empty";
    if (counts_.unreadable_lines > 0) {
      what = internal::StrCat("has no reports: ", counts_.unreadable_lines,
                              " lines are not journal lines");
    } else if (events_ > 0) {
      what = internal::StrCat("has no reports, only ", events_, " events");
    }
    return absl::FailedPreconditionError(internal::StrCat("'", path, "' ", what));
  }

  void Add(AnalyzedReport report) {
    if (ended_) return;  // the rest of a chunk
    report.verdict = replay_.Add(report.report);
    ++counts_.reports;
    ended_ = !each_(report);
  }
  void AddUnreadable() { ++counts_.unreadable_lines; }
  void SetReplicas(ReplicaStatus replicas) { counts_.replicas = std::move(replicas); }

 private:
  const std::function<bool(const AnalyzedReport&)>& each_;
  Replay replay_;
  ReplayedJournal counts_;
  int64_t events_ = 0;
  bool ended_ = false;
};

// Reads the journals of a run's ranks as one.
absl::Status ReadRanks(const std::string& path, Replayer& replayer) {
  internal::RankJournals ranks(
      path, Clock::Real(),
      {.report = [&](Report report) { replayer.Add({.report = std::move(report), .verdict = {}}); },
       .event = nullptr,
       .unreadable = [&] { replayer.AddUnreadable(); }},
      internal::RankJournals::Wait::kNever);
  const absl::Status known = ranks.ReadStatus();  // says which run it is
  if (!known.ok() && !absl::IsNotFound(known)) return known;
  while (!replayer.ended()) {
    PTQWATCH_ASSIGN_OR_RETURN(const bool more, ranks.ReadJournals());
    if (!more) break;
  }
  replayer.SetReplicas(ranks.status().monitor.replicas);
  return absl::OkStatus();
}

// Opens all parts first, because a running run may remove the oldest one meanwhile.
absl::Status ReplayRunDirectory(const std::string& path, Replayer& replayer) {
  if (!internal::RanksIn(path).empty()) return ReadRanks(path, replayer);
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<std::string> paths, internal::JournalPaths(path));
  std::vector<internal::InputFile> parts;
  for (const std::string& part : paths) {
    absl::StatusOr<internal::InputFile> file = internal::InputFile::Open(part);
    if (absl::IsNotFound(file.status())) continue;
    PTQWATCH_RETURN_IF_ERROR(file.status());
    parts.push_back(*std::move(file));
  }
  if (parts.empty()) {
    return absl::NotFoundError(internal::StrCat("there is no journal in '", path, "'"));
  }
  for (const internal::InputFile& part : parts) {
    PTQWATCH_RETURN_IF_ERROR(replayer.Read(SourceOf(part)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReplayedJournal> ReplayJournal(
    const std::string& path, const std::function<bool(const AnalyzedReport&)>& each,
    const VerdictOptions& options) {
  PTQWATCH_RETURN_IF_ERROR(Validate(options));
  Replayer replayer(each, options);
  if (path == "-") {
    PTQWATCH_RETURN_IF_ERROR(replayer.Read(SourceOf(STDIN_FILENO, "standard input")));
    return replayer.End("standard input");
  }
  // The caller chose the path, so links and pipes are allowed.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, internal::StrCat("cannot open '", path, "'"));
  }
  const absl::Cleanup closed = [descriptor] { close(descriptor); };
  struct stat info {};
  if (fstat(descriptor, &info) != 0) {
    return absl::ErrnoToStatus(errno, internal::StrCat("cannot examine '", path, "'"));
  }
  PTQWATCH_RETURN_IF_ERROR(S_ISDIR(info.st_mode) ? ReplayRunDirectory(path, replayer)
                                                 : replayer.Read(SourceOf(descriptor, path)));
  return replayer.End(path);
}

}  // namespace ptqwatch
