#ifndef PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_OUTPUT_H_
#define PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_OUTPUT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flags.h"
#include "layer_plan.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::tools {

/// The checkpoint to write: the packed layers, and all other tensors of the original.
class Output {
 public:
  /// Reads the config.json beside the weights, if there is one. `flags` must outlive the object.
  /// InvalidArgument, naming the option, if the model is already quantized, if --out holds a
  /// checkpoint and --force is not given, or if the parent folder of --out does not exist.
  static absl::StatusOr<Output> Create(const Flags& flags);

  void Add(const LayerPlan& layer, std::vector<PackedTensor> tensors);
  /// Writes the checkpoint; the modules in `left_out` stay unchanged. If `cancel` is cancelled, it
  /// returns Cancelled and writes nothing.
  absl::Status Write(const SafetensorsFile& weights, std::vector<std::string> left_out,
                     const CancelToken& cancel) const;

 private:
  explicit Output(const Flags& flags) : flags_(flags) {}

  const Flags& flags_;
  std::string original_config_ = "{}";
  std::map<std::string, std::vector<PackedTensor>> layers_;  // by the tensor they replace
  std::vector<QuantizedModule> others_;                      // with another spec than the flags'
};

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_OUTPUT_H_
