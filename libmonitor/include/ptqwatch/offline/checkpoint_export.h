#ifndef PTQWATCH_OFFLINE_CHECKPOINT_EXPORT_H_
#define PTQWATCH_OFFLINE_CHECKPOINT_EXPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/offline/safetensors.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

/// The storage format of a module's quantized weight [m, d] in a checkpoint. G = groups of a row, b
/// = bits. Codes are dense streams of b-bit numbers in 32-bit words, lowest bits first.
enum class CheckpointFormat {
  /// The "pack-quantized" format of compressed-tensors: weight_packed I32[m, ceil(d b / 32)] along
  /// inputs, weight_scale [m, G] in the spec's scale_dtype, weight_shape I64[2]; asymmetric grids
  /// add weight_zero_point I32[ceil(m b / 32), G] along outputs. The group size must divide d.
  kCompressedTensors,
  /// GPTQ with "checkpoint_format": "gptq_v2", which stores zeros unchanged: qweight I32[d b / 32,
  /// m] along inputs, qzeros I32[G, m b / 32] along outputs, scales F16[G, m], g_idx I32[d]. Both m
  /// and d must be multiples of 32, a whole number of words at every bit-width. 2, 3, 4 or 8 bits.
  kGptqV2,
};
/// "compressed-tensors", "gptq-v2".
PTQWATCH_EXPORT std::string_view ToString(CheckpointFormat format);
/// InvalidArgument, listing the known names, for any other name.
PTQWATCH_EXPORT absl::StatusOr<CheckpointFormat> ParseCheckpointFormat(std::string_view name);

/// OK if the format can hold a weight of this shape quantized by this spec, else InvalidArgument
/// with the reason. Formats take the codes of RTN and GPTQ. Scales must be f16 (or, for
/// compressed-tensors, bf16): float32 scales would be rounded when stored, so the error of the
/// stored weight would differ from the measured one.
PTQWATCH_EXPORT absl::Status CheckPackable(CheckpointFormat format, const QuantizerSpec& spec,
                                           int64_t rows, int64_t cols);

/// A tensor and its content.
struct PackedTensor {
  std::string name;  ///< within its module, e.g. "weight_packed"
  TensorDtype dtype = TensorDtype::kI32;
  std::vector<int64_t> shape;
  std::string bytes;
};

/// Returns the tensors that represent one weight. Lossless: scale * (code - zero), computed in
/// float32 from the stored tensors, equals `weight.dequantized` bit for bit. (A reader that
/// computes in half precision rounds that product. For NVFP4 the file has the inverse of the
/// tensor's factor, which costs two more roundings in float32.) Errors: those of CheckPackable;
/// InvalidArgument if `weight` has no codes, sizes do not match `rows` and `cols`, or the spec's
/// scale_dtype cannot hold a scale; ResourceExhausted.
PTQWATCH_EXPORT absl::StatusOr<std::vector<PackedTensor>> PackWeight(CheckpointFormat format,
                                                                     const QuantizerSpec& spec,
                                                                     int64_t rows, int64_t cols,
                                                                     const QuantizedWeight& weight);

/// A module and the spec that its weight was quantized by.
struct QuantizedModule {
  std::string name;
  QuantizerSpec spec;
};

/// Returns the JSON object for "quantization_config" in a config.json. `left_out` names the modules
/// whose weights are matrices but are not quantized, and `others` those with another spec than
/// `spec`, of the same number format. REQUIRES: CheckPackable accepts each spec for some shape.
PTQWATCH_EXPORT std::string QuantizationConfigJson(CheckpointFormat format,
                                                   const QuantizerSpec& spec,
                                                   const std::vector<std::string>& left_out,
                                                   const std::vector<QuantizedModule>& others = {});

/// Writes `folder`/model.safetensors and `folder`/config.json, and creates the folder if needed.
/// Both files are complete on disk under temporary names before the first is renamed. A failure
/// before that leaves the folder as it was. Errors: those of WriteSafetensors.
PTQWATCH_EXPORT absl::Status WriteCheckpoint(const std::string& folder,
                                             const std::vector<TensorSource>& tensors,
                                             const TensorMetadata& metadata,
                                             const std::string& config_json);

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_CHECKPOINT_EXPORT_H_
