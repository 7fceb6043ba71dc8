#ifndef PTQWATCH_MODELS_CHECKPOINT_FILES_H_
#define PTQWATCH_MODELS_CHECKPOINT_FILES_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "models/model_config.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

/// A folder in the format of Hugging Face: config.json, and model.safetensors or the shards that
/// model.safetensors.index.json lists. Reads the config and the headers; the tensors on request. No
/// LibTorch here. Movable; reading is thread-safe.
class CheckpointFiles {
 public:
  /// Follows symbolic links, as hub caches have them. Shards must hold the tensors that the index
  /// says, and no others.
  ///
  /// Errors name the file, and the key or the tensor: NotFound (no config, no weights, a shard that
  /// the index lists), InvalidArgument (ParseModelConfig's, a damaged index, weights as a pickle
  /// alone), DataLoss (a damaged or truncated file).
  static absl::StatusOr<CheckpointFiles> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  /// The paths of config, index and weights that were read.
  const std::vector<std::string>& paths() const { return paths_; }
  /// All tensors, ascending.
  std::vector<std::string> Names() const;
  /// The file that holds a tensor; null if there is no such tensor.
  const SafetensorsFile* FileOf(std::string_view tensor) const;

 private:
  CheckpointFiles() = default;
  absl::Status OpenWeights();
  absl::Status OpenShards(const std::string& index_path);
  absl::Status CheckShards(const std::map<std::string, std::string>& file_of_tensor,
                           const std::string& index_path) const;

  std::string folder_;
  ModelConfig config_;
  std::vector<std::string> paths_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> file_of_;  // index in files_
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_CHECKPOINT_FILES_H_
