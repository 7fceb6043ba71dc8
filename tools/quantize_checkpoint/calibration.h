#ifndef PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_CALIBRATION_H_
#define PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_CALIBRATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/offline/safetensors.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::tools {

/// Second moments of the layers' inputs. Keeps the last ones, so that consecutive layers with the
/// same inputs share them.
class Calibration {
 public:
  /// `inputs` must outlive the object.
  explicit Calibration(const SafetensorsFile& inputs) : inputs_(inputs) {}

  /// The statistics of the tensor `name`, [..., d] with d > 0; valid until the next call. Reads the
  /// tensor a few thousand rows at a time. Errors: those of SafetensorsFile and GramAccumulator.
  absl::StatusOr<const GramStatistics*> Get(const std::string& name,
                                            const ExecutionContext& context);

 private:
  const SafetensorsFile& inputs_;
  std::string name_;
  GramStatistics statistics_;
};

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_CALIBRATION_H_
