#ifndef PTQWATCH_MODELS_CHECKPOINT_FILES_H_
#define PTQWATCH_MODELS_CHECKPOINT_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "models/model_config.h"
#include "models/packed_tensors.h"
#include "models/sharded_tensors.h"
#include "models/stored_tensors.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

/// A folder in the format of Hugging Face: config.json, and model.safetensors, the shards that
/// model.safetensors.index.json lists, or the shard-*.safetensors that the ranks of a trainer have
/// written (PutTogether). Reads the config and the headers; the tensors on request. No
/// LibTorch here. Movable; reading is thread-safe.
class CheckpointFiles {
 public:
  /// `config` is the path of a config that stands for the folder's own; empty: none does.
  ///
  /// Follows symbolic links, as hub caches have them. Shards must hold the tensors that the index
  /// says, and no others. Aliases in a file's metadata, which safetensors' save_model writes for
  /// tied tensors, stand for the tensors that they name. Tensors have the names of their family
  /// (WithNamesOfFamily).
  ///
  /// Errors name the file, and the key or the tensor: NotFound (no config, no weights, a shard that
  /// the index lists), InvalidArgument (ParseModelConfig's, WithNamesOfFamily's, a damaged index,
  /// weights in another format, with advice), DataLoss (a damaged or truncated file).
  static absl::StatusOr<CheckpointFiles> Open(const std::string& folder,
                                              const std::string& config = {});

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  /// All tensors, ascending.
  std::vector<std::string> Names() const;
  struct Place {
    const SafetensorsFile* file = nullptr;   ///< null if there is no such tensor
    std::string_view name = {};              ///< in the file
    const ShardedTensor* sharded = nullptr;  ///< null if `file` has all of it
    const PackedTensor* packed = nullptr;    ///< null unless it is unpacked as it is read

    TensorDtype dtype() const { return sharded ? sharded->dtype : file->Find(name)->dtype; }
    const std::vector<int64_t>& shape() const {
      return sharded ? sharded->shape : packed ? packed->shape : file->Find(name)->shape;
    }
    /// Whether Read can read it.
    bool readable() const { return packed != nullptr || IsConvertibleToFloat(dtype()); }
  };
  Place Find(std::string_view tensor) const;
  /// Reads elements [first, first + count) of a tensor in row-major order as float32; of a packed
  /// one whole matrices. Errors: those of SafetensorsFile::ReadFloats.
  absl::Status Read(const Place& place, int64_t first, int64_t count, float* out) const;
  /// Whether the ranks of a trainer have written the weights, so that a file may be missing without
  /// a sign of it.
  bool sharded() const { return !sharded_.empty(); }

 private:
  CheckpointFiles() = default;
  absl::Status OpenWeights();
  absl::Status OpenShards(const std::string& index_path);
  absl::Status OpenShardsOfRanks(const std::vector<std::string>& names);
  void FollowAliases();
  absl::Status CheckShards(const std::map<std::string, std::string>& file_of_tensor,
                           const std::string& index_path) const;

  std::string folder_;
  ModelConfig config_;
  std::vector<SafetensorsFile> files_;
  StoredTensors tensors_;
  ShardedTensors sharded_;  // by their names in the files
  PackedTensors packed_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_CHECKPOINT_FILES_H_
