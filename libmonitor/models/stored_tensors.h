#ifndef PTQWATCH_MODELS_STORED_TENSORS_H_
#define PTQWATCH_MODELS_STORED_TENSORS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "models/model_config.h"

namespace ptqwatch::internal {

/// Where the files of a checkpoint have a tensor.
struct StoredTensor {
  size_t file = 0;
  std::string name;  ///< there
};
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

/// Returns `stored` under the names that the model's family gives the tensors. What torch.compile,
/// FSDP and activation checkpointing put into names goes, and so does the prefix of a module that
/// holds the model ("module."); a base model's tensors get the family's prefix
/// ("model.embed_tokens" for "embed_tokens"). A tied head that is stored alone, or is an alias of
/// the embedding, is given as the embedding. Other names stay as they are.
///
/// InvalidArgument names two tensors that would get one name, or the prefixes of several models.
absl::StatusOr<StoredTensors> WithNamesOfFamily(const StoredTensors& stored,
                                                const ModelConfig& config);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_STORED_TENSORS_H_
