#include "models/checkpoint_files.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"
#include "checkpoint/folder_format.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// Elements that are read at once, in addition to where they go.
constexpr int64_t kReadPiece = int64_t{1} << 20;

bool FileExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The index's weight_map: the file of each tensor.
absl::StatusOr<std::map<std::string, std::string>> ParseIndex(const std::string& text,
                                                              const std::string& path) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto damaged = [&path](std::string_view what) {
    return absl::InvalidArgumentError(StrCat(Quoted(path), ": ", what));
  };
  if (!object.is_object()) return damaged("not a JSON object");
  const auto found = object.find("weight_map");
  if (found == object.end()) return damaged("weight_map is missing");
  if (!found->is_object() || found->empty()) {
    return damaged("weight_map is no object of tensors and their files");
  }
  std::map<std::string, std::string> file_of_tensor;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string()) {
      return damaged(StrCat("weight_map has no file name for tensor ", Quoted(tensor)));
    }
    const auto& name = file.get_ref<const std::string&>();
    if (name.empty() || name[0] == '.' ||
        name.find_first_of(std::string_view("/\0", 2)) != name.npos) {
      return damaged(StrCat("weight_map gives ", Quoted(name), " for tensor ", Quoted(tensor),
                            "; the name of a file in the same folder is needed"));
    }
    file_of_tensor.emplace(tensor, name);
  }
  return file_of_tensor;
}

}  // namespace

absl::StatusOr<CheckpointFiles> CheckpointFiles::Open(const std::string& folder,
                                                      const std::string& config) {
  CheckpointFiles checkpoint;
  checkpoint.folder_ = folder;
  const std::string path = config.empty() ? folder + "/config.json" : config;
  if (!FileExists(path)) {
    if (!ShardsOfRanks(folder).empty()) {
      return absl::NotFoundError(StrCat("there is no ", Quoted(path),
                                        "; beside the shards of a trainer's ranks --config names "
                                        "the config.json of the model"));
    }
    PTQWATCH_RETURN_IF_ERROR(CheckFormat(folder));
  }
  PTQWATCH_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  PTQWATCH_ASSIGN_OR_RETURN(checkpoint.config_, ParseModelConfig(text, path));
  PTQWATCH_RETURN_IF_ERROR(Guard(Quoted(folder), absl::StatusCode::kInternal,
                                 [&checkpoint] { return checkpoint.OpenWeights(); }));
  checkpoint.FollowAliases();
  absl::StatusOr<StoredTensors> named = WithNamesOfFamily(checkpoint.tensors_, checkpoint.config_);
  if (!named.ok()) {
    return absl::Status(named.status().code(), StrCat(Quoted(folder), ": ", named.status()));
  }
  checkpoint.tensors_ = *std::move(named);
  if (!checkpoint.config_.mxfp4) return checkpoint;
  absl::StatusOr<PackedTensors> packed =
      TakePacked(checkpoint.files_, checkpoint.sharded(), checkpoint.tensors_);
  if (!packed.ok()) {
    return absl::Status(packed.status().code(), StrCat(Quoted(folder), ": ", packed.status()));
  }
  checkpoint.packed_ = *std::move(packed);
  return checkpoint;
}

absl::Status CheckpointFiles::OpenWeights() {
  const std::string path = StrCat(folder_, "/", kWeights);
  if (!FileExists(path)) {
    const std::string index = StrCat(folder_, "/", kIndex);
    if (FileExists(index)) return OpenShards(index);
    const std::vector<std::string> shards = ShardsOfRanks(folder_);
    if (!shards.empty()) return OpenShardsOfRanks(shards);
    PTQWATCH_RETURN_IF_ERROR(CheckFormat(folder_));
    return absl::NotFoundError(
        StrCat(Quoted(folder_), " has no weights: neither ", kWeights, " nor ", kIndex));
  }
  PTQWATCH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const auto& [tensor, info] : file.tensors())
    tensors_.emplace(tensor, StoredTensor{0, tensor});
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status CheckpointFiles::OpenShards(const std::string& index_path) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path));
  using FileOfTensor = std::map<std::string, std::string>;
  PTQWATCH_ASSIGN_OR_RETURN(const FileOfTensor file_of_tensor, ParseIndex(text, index_path));
  std::map<std::string, size_t> position;  // of a file in files_
  for (const auto& [tensor, name] : file_of_tensor) {
    const auto [found, is_new] = position.emplace(name, files_.size());
    if (is_new) {
      const std::string path = StrCat(folder_, "/", name);
      if (!FileExists(path)) {
        return absl::NotFoundError(StrCat("there is no ", Quoted(path), ", which ",
                                          Quoted(index_path), " names for tensor ",
                                          Quoted(tensor)));
      }
      PTQWATCH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
      files_.push_back(std::move(file));
    }
    tensors_.emplace(tensor, StoredTensor{found->second, tensor});
  }
  return CheckShards(file_of_tensor, index_path);
}

absl::Status CheckpointFiles::OpenShardsOfRanks(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    PTQWATCH_ASSIGN_OR_RETURN(SafetensorsFile file,
                              SafetensorsFile::Open(StrCat(folder_, "/", name)));
    files_.push_back(std::move(file));
  }
  PTQWATCH_ASSIGN_OR_RETURN(sharded_, PutTogether(files_));
  for (const auto& [name, tensor] : sharded_) {
    const size_t file = tensor.boxes.empty() ? 0 : tensor.boxes.front().file;
    tensors_.emplace(name, StoredTensor{file, name});
  }
  return absl::OkStatus();
}

absl::Status CheckpointFiles::CheckShards(const std::map<std::string, std::string>& file_of_tensor,
                                          const std::string& index_path) const {
  for (const auto& [tensor, stored] : tensors_) {
    const SafetensorsFile& file = files_[stored.file];
    if (file.Find(tensor) != nullptr) continue;
    return absl::InvalidArgumentError(StrCat(Quoted(file.path()), " has no tensor ", Quoted(tensor),
                                             ", but ", Quoted(index_path), " says so"));
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const auto& [tensor, info] : files_[i].tensors()) {
      const auto found = tensors_.find(tensor);
      if (found != tensors_.end() && found->second.file == i) continue;
      return absl::InvalidArgumentError(StrCat(
          Quoted(files_[i].path()), " has tensor ", Quoted(tensor), ", but ", Quoted(index_path),
          found == tensors_.end()
              ? std::string(" does not list it")
              : StrCat(" says that it is in ", Quoted(file_of_tensor.at(tensor)))));
    }
  }
  return absl::OkStatus();
}

void CheckpointFiles::FollowAliases() {
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const auto& [alias, tensor] : files_[i].metadata()) {
      if (files_[i].Find(tensor) != nullptr) tensors_.emplace(alias, StoredTensor{i, tensor});
    }
  }
}

std::vector<std::string> CheckpointFiles::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

CheckpointFiles::Place CheckpointFiles::Find(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return {};
  const auto sharded = sharded_.find(found->second.name);
  const auto packed = packed_.find(tensor);
  return {.file = &files_[found->second.file],
          .name = found->second.name,
          .sharded = sharded == sharded_.end() ? nullptr : &sharded->second,
          .packed = packed == packed_.end() ? nullptr : &packed->second};
}

absl::Status CheckpointFiles::Read(const Place& place, int64_t first, int64_t count,
                                   float* out) const {
  if (place.sharded != nullptr) {
    return ReadSharded(files_, std::string(place.name), *place.sharded, first, count, out);
  }
  if (place.packed != nullptr) {
    const int64_t matrix = place.packed->shape[1] * place.packed->shape[2];
    return ReadPacked(files_, *place.packed, first / matrix, count / matrix, out);
  }
  for (int64_t done = 0; done < count; done += kReadPiece) {
    PTQWATCH_ASSIGN_OR_RETURN(
        const std::vector<float> values,
        place.file->ReadFloats(place.name, first + done, std::min(kReadPiece, count - done)));
    out = std::copy(values.begin(), values.end(), out);
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
