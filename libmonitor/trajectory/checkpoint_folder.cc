#include "trajectory/checkpoint_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"
#include "checkpoint/folder_format.h"
#include "trajectory/checkpoint_name.h"
#include "trajectory/hub_cache.h"
#include "trajectory/trainer_state.h"

namespace ptqwatch::internal {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kConfig[] = "config.json";
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

bool HasFile(const fs::path& folder, const std::string& name) {
  std::error_code error;
  return fs::is_regular_file(folder / name, error);
}

absl::Status Lacks(const std::string& folder, std::string_view file) {
  PTQWATCH_RETURN_IF_ERROR(CheckFormat(folder));
  return absl::NotFoundError(StrCat(Quoted(folder), " has no ", file));
}

std::string LastPart(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

// The name of a folder for people: of several revisions, one that has a step.
std::string NameOfFolder(const std::string& path, const std::string& folder) {
  if (folder != path) return LastPart(path);  // a file below refs
  const std::vector<std::string> revisions = RevisionNamesOf(folder);
  for (const std::string& revision : revisions) {
    if (ParseCheckpointName(revision)) return revision;
  }
  return revisions.empty() ? LastPart(path) : revisions.front();
}

// Fills in path and name, and what the trainer logged.
absl::StatusOr<std::pair<Checkpoint, std::optional<TrainerState>>> Open(const std::string& path,
                                                                        std::string name) {
  Checkpoint checkpoint;
  const std::string snapshot = SnapshotOfRef(path);
  checkpoint.path = snapshot.empty() ? path : snapshot;
  std::error_code error;
  if (!fs::is_directory(checkpoint.path, error)) {
    return absl::ErrnoToStatus(error ? error.value() : ENOTDIR,
                               StrCat("cannot use checkpoint ", Quoted(checkpoint.path)));
  }
  checkpoint.name = name.empty() ? NameOfFolder(path, checkpoint.path) : std::move(name);
  std::optional<TrainerState> state;
  if (HasFile(checkpoint.path, kTrainerStateName)) {
    const std::string file = StrCat(checkpoint.path, "/", kTrainerStateName);
    PTQWATCH_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
    PTQWATCH_ASSIGN_OR_RETURN(state, ParseTrainerState(text, file));
    checkpoint.rates = state->rates;
  }
  return std::pair(std::move(checkpoint), std::move(state));
}

}  // namespace

absl::StatusOr<Checkpoint> DescribeCheckpoint(const std::string& path, std::string name) {
  PTQWATCH_ASSIGN_OR_RETURN(auto opened, Open(path, std::move(name)));
  auto& [checkpoint, state] = opened;
  const std::optional<CheckpointName> parsed = ParseCheckpointName(checkpoint.name);
  if (parsed) checkpoint.branch = parsed->branch;
  checkpoint.step = state ? state->step : parsed ? parsed->step : kUnknownStep;
  if (state) checkpoint.tokens = state->tokens;
  if (!checkpoint.tokens && parsed) checkpoint.tokens = parsed->tokens;
  return checkpoint;
}

absl::StatusOr<Checkpoint> DescribeCheckpointAt(const std::string& path, int64_t step) {
  PTQWATCH_ASSIGN_OR_RETURN(auto opened, Open(path, ""));
  auto& [checkpoint, state] = opened;
  checkpoint.step = step;
  if (const auto parsed = ParseCheckpointName(checkpoint.name)) {
    checkpoint.branch = parsed->branch;
    if (parsed->step == step) checkpoint.tokens = parsed->tokens;
  }
  if (state && state->step == step) {
    if (state->tokens) checkpoint.tokens = state->tokens;
  } else {
    checkpoint.rates.clear();  // their steps are counted otherwise
  }
  return checkpoint;
}

absl::Status CheckComplete(const std::string& folder, bool trained) {
  const bool by_ranks = !ShardsOfRanks(folder).empty();
  // Trainers write no config beside the shards of their ranks.
  if (!HasFile(folder, kConfig) && !by_ranks) return Lacks(folder, kConfig);
  if (HasFile(folder, kIndex)) {
    const std::string path = StrCat(folder, "/", kIndex);
    PTQWATCH_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
    const json index = json::parse(text, nullptr, /*allow_exceptions=*/false);
    const bool listed = index.is_object() && index.contains("weight_map") &&
                        index["weight_map"].is_object() && !index["weight_map"].empty();
    if (!listed) return absl::NotFoundError(StrCat(Quoted(path), " lists no weights"));
    for (const auto& [tensor, file] : index["weight_map"].items()) {
      if (!file.is_string()) return absl::NotFoundError(StrCat(Quoted(path), ": ", tensor));
      if (HasFile(folder, file.get<std::string>())) continue;
      return absl::NotFoundError(StrCat(Quoted(folder), " has no ", file.get<std::string>()));
    }
  } else if (!HasFile(folder, kWeights) && !by_ranks) {
    return Lacks(folder, StrCat(kWeights, " and no ", kIndex));
  }
  if (trained && !HasFile(folder, kTrainerStateName)) {
    return absl::NotFoundError(StrCat(Quoted(folder), " has no ", kTrainerStateName));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> StateOfFolder(const std::string& folder) {
  std::error_code error;
  std::set<std::string> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat info {};
    if (stat(entry->path().c_str(), &info) != 0) continue;  // removed meanwhile
    files.insert(StrCat(entry->path().filename().string(), " ", info.st_size, " ",
                        info.st_mtim.tv_sec, " ", info.st_mtim.tv_nsec, "\n"));
  }
  if (error) return absl::ErrnoToStatus(error.value(), StrCat("cannot list ", Quoted(folder)));
  std::string state;
  for (const std::string& file : files) state += file;
  return state;
}

std::optional<double> TimeOfWeights(const std::string& folder) {
  std::vector<std::string> names = {kIndex, kWeights};
  for (std::string& shard : ShardsOfRanks(folder)) names.push_back(std::move(shard));
  names.emplace_back(kConfig);
  for (const std::string& name : names) {
    struct stat info {};
    if (stat(StrCat(folder, "/", name).c_str(), &info) != 0) continue;
    return static_cast<double>(info.st_mtim.tv_sec) +
           1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
  }
  return std::nullopt;
}

}  // namespace ptqwatch::internal
