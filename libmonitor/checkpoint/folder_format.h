#ifndef PTQWATCH_CHECKPOINT_FOLDER_FORMAT_H_
#define PTQWATCH_CHECKPOINT_FOLDER_FORMAT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ptqwatch::internal {

/// For a folder without the files of a Hugging Face checkpoint. InvalidArgument says what it holds
/// instead and how to convert it: an adapter, weights of FSDP, DeepSpeed, Megatron, llama.cpp or
/// torch.save, safetensors under other names. OK if none of these is there or the folder cannot be
/// read.
absl::Status CheckFormat(const std::string& folder);

/// The names of the files that torch.distributed.checkpoint's HuggingFaceStorageWriter has written
/// into a folder for the ranks of a trainer, shard-00001-model-00001-of-00001.safetensors and so
/// on, ascending.
std::vector<std::string> ShardsOfRanks(const std::string& folder);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHECKPOINT_FOLDER_FORMAT_H_
