#include "trajectory/checkpoint_list.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"
#include "checkpoint/folder_format.h"
#include "trajectory/checkpoint_folder.h"
#include "trajectory/checkpoint_manifest.h"
#include "trajectory/checkpoint_name.h"
#include "trajectory/hub_cache.h"
#include "trajectory/trainer_state.h"

namespace ptqwatch::internal {
namespace {

namespace fs = std::filesystem;

constexpr char kSoupBranch[] = "soup";

// Trainer's folders are complete once they hold their trainer_state.json.
bool IsTrainers(std::string_view name) { return name.starts_with("checkpoint-"); }

// Adds a checkpoint of a folder or cache, or the reason why it is left out.
absl::Status AddFound(const std::string& folder, const std::string& name, bool growing,
                      CheckpointList& list) {
  if (absl::Status complete = CheckComplete(folder, growing && IsTrainers(name)); !complete.ok()) {
    list.left_out.push_back(StrCat(name, " is left out: ", complete));
    return absl::OkStatus();
  }
  absl::StatusOr<Checkpoint> checkpoint = DescribeCheckpoint(folder, name);
  if (checkpoint.ok()) {
    list.checkpoints.push_back(*std::move(checkpoint));
    return absl::OkStatus();
  }
  if (!growing) return checkpoint.status();
  // The trainer may be writing its trainer_state.json, or removing the folder.
  list.left_out.push_back(StrCat(name, " is left out: ", checkpoint.status()));
  return absl::OkStatus();
}

absl::Status AddOne(const std::string& path, CheckpointList& list) {
  PTQWATCH_ASSIGN_OR_RETURN(Checkpoint checkpoint, DescribeCheckpoint(path));
  list.checkpoints.push_back(std::move(checkpoint));
  return absl::OkStatus();
}

// Leaves out snapshots that are not downloaded.
std::set<std::string> FoldersOf(const std::vector<HubRevision>& revisions) {
  std::set<std::string> folders;
  std::error_code error;
  for (const HubRevision& revision : revisions) {
    if (fs::is_directory(revision.folder, error)) folders.insert(revision.folder);
  }
  return folders;
}

absl::Status AddCache(const std::string& cache, bool growing, CheckpointList& list) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<HubRevision> revisions, RevisionsOf(cache));
  const size_t before = list.checkpoints.size();
  std::set<std::string> taken;
  for (const HubRevision& revision : revisions) {
    if (!ParseCheckpointName(revision.name)) continue;
    PTQWATCH_RETURN_IF_ERROR(AddFound(revision.folder, revision.name, growing, list));
    taken.insert(revision.folder);
  }
  for (const HubRevision& revision : revisions) {
    if (ParseCheckpointName(revision.name) || taken.contains(revision.folder)) continue;
    list.left_out.push_back(StrCat("revision ", revision.name, " is left out: it has no step"));
  }
  if (list.checkpoints.size() > before || growing) return absl::OkStatus();
  if (std::set<std::string> folders = FoldersOf(revisions); folders.size() == 1) {
    list.left_out.clear();
    return AddOne(*folders.begin(), list);
  }
  return absl::InvalidArgumentError(
      StrCat(Quoted(cache), " has no downloaded revision with a step in its name, such as step512",
             list.left_out.empty() ? "" : StrCat("; ", list.left_out.back())));
}

// The names of subfolders that have a step.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    // Some trainers write to tmp-checkpoint-500 and rename it.
    if (name.starts_with("tmp") || !ParseCheckpointName(name)) continue;
    if (entry->is_directory(ignored)) names.push_back(name);
  }
  if (error) return absl::ErrnoToStatus(error.value(), StrCat("cannot list ", Quoted(folder)));
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status AddFolder(const std::string& folder, bool growing, CheckpointList& list) {
  if (IsHubCache(folder)) return AddCache(folder, growing, list);
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  const size_t before = list.checkpoints.size();
  std::error_code error;
  for (const std::string& name : names) {
    PTQWATCH_RETURN_IF_ERROR(AddFound((fs::path(folder) / name).string(), name, growing, list));
  }
  if (list.checkpoints.size() > before || growing) return absl::OkStatus();
  if (names.empty() &&
      (fs::exists(fs::path(folder) / "config.json", error) || !ShardsOfRanks(folder).empty())) {
    return AddOne(folder, list);
  }
  if (names.empty()) PTQWATCH_RETURN_IF_ERROR(CheckFormat(folder));
  return absl::InvalidArgumentError(
      names.empty()
          ? StrCat(Quoted(folder),
                   " has neither a config.json nor folders with a step "
                   "in their name, such as checkpoint-500 or step512")
          : StrCat(Quoted(folder), " has no complete checkpoint: ", list.left_out.back()));
}

absl::Status AddArgument(const std::string& argument, bool growing, CheckpointList& list) {
  std::error_code error;
  if (fs::is_directory(argument, error)) return AddFolder(argument, growing, list);
  if (growing && !fs::exists(argument, error)) return absl::OkStatus();
  if (growing) {
    return absl::InvalidArgumentError(
        StrCat(Quoted(argument), " is not a folder; --follow takes folders of checkpoints"));
  }
  if (!SnapshotOfRef(argument).empty()) return AddOne(argument, list);
  PTQWATCH_ASSIGN_OR_RETURN(const std::string csv, ReadTextFile(argument));
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<Checkpoint> listed, ParseManifest(csv, argument));
  std::move(listed.begin(), listed.end(), std::back_inserter(list.checkpoints));
  return absl::OkStatus();
}

}  // namespace

std::string PlaceOf(const Checkpoint& checkpoint) {
  return StrCat(checkpoint.branch.empty() ? "" : StrCat("branch ", checkpoint.branch, ", "),
                "step ", checkpoint.step == kUnknownStep ? "unknown" : StrCat(checkpoint.step));
}

absl::StatusOr<CheckpointList> ListCheckpoints(absl::Span<const std::string> arguments,
                                               bool growing) {
  CheckpointList list;
  for (const std::string& argument : arguments) {
    PTQWATCH_RETURN_IF_ERROR(AddArgument(argument, growing, list));
  }
  for (const Checkpoint& checkpoint : list.checkpoints) {
    if (checkpoint.step != kUnknownStep || list.checkpoints.size() == 1) continue;
    return absl::InvalidArgumentError(StrCat(
        "checkpoint ", Quoted(checkpoint.path), " has no step: its name ", Quoted(checkpoint.name),
        " is not of the form step512 or checkpoint-500, and it has no ", kTrainerStateName,
        "; list it in a CSV file with the columns path,step, or alone"));
  }
  const auto place = [](const Checkpoint& checkpoint) {
    return std::tie(checkpoint.branch, checkpoint.step);
  };
  std::stable_sort(list.checkpoints.begin(), list.checkpoints.end(),
                   [&](const Checkpoint& a, const Checkpoint& b) { return place(a) < place(b); });
  const auto twice = std::adjacent_find(
      list.checkpoints.begin(), list.checkpoints.end(),
      [&](const Checkpoint& a, const Checkpoint& b) { return place(a) == place(b); });
  if (twice != list.checkpoints.end()) {
    return absl::InvalidArgumentError(
        StrCat("two checkpoints are of ", PlaceOf(*twice), ": ", Quoted(twice->path), " and ",
               Quoted(std::next(twice)->path),
               "; a CSV file with the columns path,step,branch can tell them apart"));
  }
  return list;
}

absl::StatusOr<Checkpoint> MakeSoup(absl::Span<const std::string> members,
                                    absl::Span<const Checkpoint> list) {
  if (members.size() < 2) {
    return absl::InvalidArgumentError("a soup needs two checkpoints or more");
  }
  Checkpoint soup{.branch = kSoupBranch, .step = kUnknownStep};
  for (const std::string& member : members) {
    std::vector<Checkpoint> found;
    std::copy_if(list.begin(), list.end(), std::back_inserter(found),
                 [&](const Checkpoint& checkpoint) { return checkpoint.name == member; });
    std::error_code error;
    if (found.empty() && fs::exists(member, error)) {
      PTQWATCH_ASSIGN_OR_RETURN(CheckpointList given, ListCheckpoints({&member, 1}));
      found = std::move(given.checkpoints);
    }
    if (found.size() != 1) {
      return absl::InvalidArgumentError(
          StrCat(Quoted(member), found.empty() ? " is neither the name of a listed checkpoint nor "
                                                 "the path of one"
                                               : " names several checkpoints"));
    }
    if (absl::c_linear_search(soup.soup, found.front().path)) {
      return absl::InvalidArgumentError(StrCat(Quoted(member), " is there twice"));
    }
    soup.soup.push_back(found.front().path);
    soup.step = std::max(soup.step, found.front().step);
    soup.name += StrCat(soup.name.empty() ? "" : "+", found.front().name);
  }
  return soup;
}

}  // namespace ptqwatch::internal
