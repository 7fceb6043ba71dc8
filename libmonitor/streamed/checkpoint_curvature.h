#ifndef PTQWATCH_STREAMED_CHECKPOINT_CURVATURE_H_
#define PTQWATCH_STREAMED_CHECKPOINT_CURVATURE_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "models/decoder.h"
#include "probes/probe_result.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_curvature.h"
#include "ptqwatch/options.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// A quantized weight of the model, by the name of its linear (DecoderLinear).
struct NamedWeight {
  std::string name;
  at::Tensor value;
};

/// Measures curvature on the whole model in memory, as a monitor does at its first snapshot: on the
/// first probe sequences (DefaultCurvatureSequences), and along the errors of the quantizers with
/// the weights `quantized`, one element each, which may be empty. `quantization` holds a
/// QuantizationResult with the reservation of these weights, which is released. A mixture of
/// experts is measured by exact products, or has a status. Every failure is a status of the result.
/// Never throws.
ProbeResult MeasureCheckpointCurvature(const Decoder& decoder, const std::vector<Batch>& probe,
                                       const CurvatureOptions& options,
                                       std::vector<std::vector<NamedWeight>> quantized,
                                       ProbeResult& quantization, const ExecutionContext& context,
                                       const CurvatureEngineOptions& engine = {});

/// The result of a model that is not measured.
ProbeResult NoCurvature(const CurvatureOptions& options, ProbeStatus status, std::string detail);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_CHECKPOINT_CURVATURE_H_
