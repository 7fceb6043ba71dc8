#ifndef PTQWATCH_MODELS_ROPE_CONFIG_H_
#define PTQWATCH_MODELS_ROPE_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "models/config_reader.h"
#include "models/model_config.h"
#include "models/model_family.h"

namespace ptqwatch::internal {

/// The rotary embeddings of a model's layers.
struct RopeConfigs {
  RopeConfig full;      ///< of layers that see all earlier positions
  RopeConfig windowed;  ///< of layers with a sliding window
};

/// Reads the keys of either generation; rope_scaling, which is the older one, goes before
/// rope_parameters.
absl::StatusOr<RopeConfigs> ReadRope(const ConfigReader& config, const ModelFamily& family,
                                     int64_t head_dim, int64_t context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_ROPE_CONFIG_H_
