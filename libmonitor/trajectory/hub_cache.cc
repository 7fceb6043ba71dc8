#include "trajectory/hub_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

namespace fs = std::filesystem;

constexpr char kRefs[] = "refs";
constexpr char kSnapshots[] = "snapshots";

// Without a slash at the end, and without "." and "..".
fs::path WholePath(const std::string& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

absl::StatusOr<std::string> CommitOf(const fs::path& ref) {
  PTQWATCH_ASSIGN_OR_RETURN(std::string commit, ReadTextFile(ref.string()));
  absl::StripAsciiWhitespace(&commit);
  if (commit.empty() || commit.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(StrCat(Quoted(ref.string()), " holds no commit"));
  }
  return commit;
}

}  // namespace

bool IsHubCache(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(fs::path(folder) / kRefs, error) &&
         fs::is_directory(fs::path(folder) / kSnapshots, error);
}

absl::StatusOr<std::vector<HubRevision>> RevisionsOf(const std::string& cache) {
  const fs::path refs = fs::path(cache) / kRefs;
  std::error_code error;
  std::vector<HubRevision> revisions;
  for (fs::recursive_directory_iterator entry(refs, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_regular_file(ignored)) continue;
    PTQWATCH_ASSIGN_OR_RETURN(const std::string commit, CommitOf(entry->path()));
    revisions.push_back({.name = entry->path().lexically_relative(refs).string(),
                         .folder = (fs::path(cache) / kSnapshots / commit).string()});
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), StrCat("cannot list ", Quoted(refs.string())));
  }
  std::sort(revisions.begin(), revisions.end(),
            [](const HubRevision& a, const HubRevision& b) { return a.name < b.name; });
  return revisions;
}

std::string SnapshotOfRef(const std::string& path) {
  std::error_code error;
  const fs::path ref = WholePath(path);
  if (!fs::is_regular_file(ref, error)) return "";
  for (fs::path folder = ref.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (folder.filename() != kRefs || !IsHubCache(folder.parent_path().string())) continue;
    const absl::StatusOr<std::string> commit = CommitOf(ref);
    return commit.ok() ? (folder.parent_path() / kSnapshots / *commit).string() : "";
  }
  return "";
}

std::vector<std::string> RevisionNamesOf(const std::string& folder) {
  const fs::path snapshot = WholePath(folder);
  const fs::path cache = snapshot.parent_path().parent_path();
  std::vector<std::string> names;
  if (snapshot.parent_path().filename() != kSnapshots || !IsHubCache(cache.string())) return names;
  const auto revisions = RevisionsOf(cache.string());
  if (!revisions.ok()) return names;
  for (const HubRevision& revision : *revisions) {
    if (fs::path(revision.folder).filename() == snapshot.filename()) names.push_back(revision.name);
  }
  return names;
}

}  // namespace ptqwatch::internal
