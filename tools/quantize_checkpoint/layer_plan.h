#ifndef PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_LAYER_PLAN_H_
#define PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_LAYER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/offline/safetensors.h"
#include "quantize_flags.h"

namespace ptqwatch::examples {

/// A layer is a matrix of real numbers named MODULE.weight, [outputs, inputs].
struct LayerPlan {
  std::string module;
  std::string tensor;  ///< "MODULE.weight"
  std::string inputs;  ///< name in the inputs file; empty: none
  int64_t rows = 0;
  int64_t cols = 0;
};

struct Plan {
  /// What will be quantized; layers with the same inputs are neighbours.
  std::vector<LayerPlan> layers;
  /// Modules that are layers by form and stay as they are.
  std::vector<std::string> left_out;
  /// Those of them that only lack inputs.
  std::vector<std::string> without_inputs;
};

/// Chooses the layers: those that match --layers and no --exclude and, where there is an inputs
/// file, have inputs in it. InvalidArgument, naming the option and the layer, where a layer cannot
/// be quantized or stored as the flags say, or nothing is left. `inputs` may be null.
absl::StatusOr<Plan> MakePlan(const QuantizeFlags& flags, const SafetensorsFile& weights,
                              const SafetensorsFile* inputs);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_LAYER_PLAN_H_
