#ifndef PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_LAYER_PLAN_H_
#define PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_LAYER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flags.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::tools {

/// A layer: a matrix of real numbers named MODULE.weight, [outputs, inputs].
struct LayerPlan {
  std::string module;
  std::string tensor;  ///< "MODULE.weight"
  std::string inputs;  ///< name in the inputs file; empty: none
  int64_t rows = 0;
  int64_t cols = 0;
};

struct Plan {
  /// Layers to quantize; layers with the same inputs are consecutive.
  std::vector<LayerPlan> layers;
  /// Modules with the form of a layer that stay unchanged.
  std::vector<std::string> left_out;
  /// Modules of `left_out` that lack only inputs.
  std::vector<std::string> without_inputs;
};

/// Selects the layers that match --layers, match no --exclude and, if there is an inputs file, have
/// inputs in it. `inputs` may be null. InvalidArgument, naming the option and the layer, if a layer
/// cannot be quantized or stored as the flags require, or if no layer is left.
absl::StatusOr<Plan> MakePlan(const Flags& flags, const SafetensorsFile& weights,
                              const SafetensorsFile* inputs);

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_LAYER_PLAN_H_
