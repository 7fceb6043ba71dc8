#ifndef PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_OUTPUT_H_
#define PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_OUTPUT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "layer_plan.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/offline/safetensors.h"
#include "quantize_flags.h"

namespace ptqwatch::examples {

/// The checkpoint that is written at the end: the packed layers, and everything else of the
/// original.
class Output {
 public:
  /// Reads the config.json beside the weights, if there is one. InvalidArgument, naming the option,
  /// where it says that the model is quantized already, where --out already holds a checkpoint and
  /// --force is not given, or where its parent folder does not exist.
  static absl::StatusOr<Output> Create(const QuantizeFlags& flags);

  void Add(const LayerPlan& layer, std::vector<PackedTensor> tensors);
  /// Writes all of it; `left_out` are modules that stay as they were. Cancelled, with nothing
  /// written, once `cancel` is.
  absl::Status Write(const SafetensorsFile& weights, std::vector<std::string> left_out,
                     const CancelToken& cancel) const;

 private:
  explicit Output(const QuantizeFlags& flags) : flags_(flags) {}

  const QuantizeFlags& flags_;
  std::string original_config_ = "{}";
  std::map<std::string, std::vector<PackedTensor>> layers_;  // by the tensor they replace
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_OUTPUT_H_
