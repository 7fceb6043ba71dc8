#ifndef PTQWATCH_CHAR_GPT_TRAINING_STATE_H_
#define PTQWATCH_CHAR_GPT_TRAINING_STATE_H_

#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "optimizer.h"
#include "ptqwatch/subject.h"
#include "torch/nn/module.h"

namespace ptqwatch::examples {

/// Writes a safetensors file: the parameters, Muon's momentum, AdamW's two moments and step counts,
/// and the generator as metadata. Reading it back gives the same bits. Writes the whole file or
/// nothing (fsync and rename). Errors as WriteSafetensors.
absl::Status SaveTrainingState(const std::string& path, const torch::nn::Module& model,
                               const Optimizer& optimizer, const std::mt19937_64& generator);

/// Reads a file from SaveTrainingState. Errors: those of SafetensorsFile; DataLoss, naming the
/// file, if it belongs to another model or optimizer or is incomplete.
absl::Status LoadTrainingState(const std::string& path, torch::nn::Module& model,
                               Optimizer& optimizer, std::mt19937_64& generator);

/// Writes only the parameters, under their names.
absl::Status SaveModelWeights(const std::string& path, const torch::nn::Module& model);

/// Copies `weights` into the parameters of the same names. Returns InvalidArgument, naming the
/// parameter, if one is missing or has another shape.
absl::Status SetModelWeights(const std::vector<NamedTensor>& weights, torch::nn::Module& model);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_TRAINING_STATE_H_
