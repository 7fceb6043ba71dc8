#ifndef PTQWATCH_LOSS_SLICE_H_
#define PTQWATCH_LOSS_SLICE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ptqwatch/config.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

/// A point of the plane and its mean loss. Coordinates are distances from Theta_K divided by
/// ||Theta_K||: x along Theta_{K-1} - Theta_K, y along the part of the quantization error
/// orthogonal to it. The loss is NaN if it is not finite.
struct SlicePoint {
  double x = 0;
  double y = 0;
  double loss_nats = std::numeric_limits<double>::quiet_NaN();
};

/// The mean loss, in nats per token, over the plane through the weights of two snapshots and the
/// quantized weights of the later one, in the space of all floating-point parameters.
struct LossSlice {
  int schema_version = 1;
  std::string run_id = {};
  std::string fingerprint = {};
  int64_t step = 0;           ///< of Theta_K
  int64_t previous_step = 0;  ///< of Theta_{K-1}
  QuantizationMethod method = QuantizationMethod::kRtn;
  int bits = 0;
  std::optional<std::string> format = {};  ///< absent: implied by the method
  int group_size = 0;
  double weight_norm = 0;  ///< ||Theta_K||, the unit of the coordinates
  int64_t parameters = 0;  ///< dimension of the space
  int64_t batch_tokens = 0;

  SlicePoint current = {};  ///< Theta_K, the origin
  SlicePoint previous = {};
  SlicePoint quantized = {};

  std::vector<double> x = {};                       ///< ascending
  std::vector<double> y = {};                       ///< ascending
  std::vector<std::vector<double>> loss_nats = {};  ///< [y][x]

  int64_t loss_evaluations = 0;  ///< passes over all batches
  double seconds = 0;
};

/// The slice as JSON with the names above, in that order. A loss that is not finite is null.
PTQWATCH_EXPORT std::string ToJson(const LossSlice& slice);

}  // namespace ptqwatch

#endif  // PTQWATCH_LOSS_SLICE_H_
