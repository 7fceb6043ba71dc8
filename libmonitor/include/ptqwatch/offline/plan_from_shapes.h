#ifndef PTQWATCH_OFFLINE_PLAN_FROM_SHAPES_H_
#define PTQWATCH_OFFLINE_PLAN_FROM_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

/// A parameter or buffer of a model, which need not exist.
struct TensorShape {
  std::string name = {};
  std::vector<int64_t> shape = {};  ///< of a weight: [outputs, inputs, ...]
  int64_t element_bytes = 4;
};

/// What one core of a machine does.
struct MachineRates {
  /// In layers with so many inputs.
  struct OfWidth {
    int64_t inputs = 0;
    double gram = 0;  ///< FLOP/s of a Gram matrix, n d^2 for n tokens
    /// FLOP/s of each quantizer.
    std::vector<double> quantize = {};
  };
  double product = 0;                ///< FLOP/s of large products
  double activation_seconds = 0;     ///< for reading or writing one activation in a forward pass
  double operator_seconds = 2e-6;    ///< for calling one operator
  double copied_bytes = 0;           ///< a second
  std::vector<OfWidth> widths = {};  ///< ascending, at least one
};

/// Measures this machine on the calling thread, for these quantizers. Cost: some 2 s and 100 MB.
PTQWATCH_EXPORT absl::StatusOr<MachineRates> MeasureMachineRates(
    absl::Span<const QuantizerSpec> quantizers, const ExecutionContext& context = {});

/// The run for which a plan is made.
struct ShapePlanOptions {
  int64_t sequence_tokens = 1024;
  int64_t batch_sequences = 8;  ///< of a probe and of a calibration batch
  int64_t probe_batches = 32;
  int64_t calibration_batches = 16;
  int64_t curvature_sequences = 64;  ///< 0: no curvature
  int64_t averaged_snapshots = 6;    ///< AveragingOptions::window; 0: no averages
  double step_seconds = 1;           ///< of the training
  int64_t every = 1000;              ///< steps between snapshots
  bool spare_core = true;            ///< that training leaves to the monitor
  double max_overhead = 0.02;
  bool adapt_plan = true;  ///< false: all batches at every snapshot
  int64_t max_gram_bytes = int64_t{1} << 30;
  std::vector<QuantizerSpec> quantizers = DefaultQuantizers();
  /// Of each attention block; 0: one for every 64 of its width.
  int64_t attention_heads = 0;
  /// Globs over names. A matrix that matches one of `embeddings` is in no product; one that matches
  /// one of `heads` is in a product and not quantized; nor is one that matches one of `exclude`.
  /// Without a head, the largest embedding is also the head.
  std::vector<std::string> embeddings = {"*emb*", "*wte*", "*wpe*", "*position*", "*characters*"};
  std::vector<std::string> heads = {"*head*", "output.weight"};
  std::vector<std::string> exclude = {};
};

/// One part of a monitor's work or memory.
struct PlanPart {
  std::string name = {};
  double seconds = 0;  ///< of work at a snapshot that has the part; 0: none
  int64_t bytes = 0;   ///< 0: none worth the name
};

/// What a monitor of a model would do, from the shapes of its tensors alone.
struct PTQWATCH_EXPORT ShapePlan {
  int64_t parameters = 0;
  int64_t quantized_parameters = 0;
  int64_t quantized_layers = 0;
  std::string plan;  ///< what a snapshot is measured with
  std::vector<PlanPart> parts;
  int64_t curvature_every = 0;  ///< snapshots; 0: no curvature
  double snapshot_seconds = 0;  ///< of work, in the mean
  int64_t peak_bytes = 0;       ///< of all parts that are there at the same time
  int64_t report_every = 0;     ///< steps
  double report_seconds = 0;    ///< from a snapshot to its report, in the mean
  double overhead_ratio = 0;    ///< share of its time that training loses

  /// All of it as a table and a sentence.
  std::string Describe() const;
};

/// The estimate assumes a transformer over sequences of tokens: every matrix but an embedding is
/// multiplied with every token, q, k and v (and gate and up) of a block share their inputs, and the
/// widths of the blocks tell how many attend to how much. The time of curvature assumes the usual
/// number of products. Memory: small. Thread-safe.
///
/// Errors: InvalidArgument (a size that is not positive, no matrix to quantize, rates of other
/// quantizers).
PTQWATCH_EXPORT absl::StatusOr<ShapePlan> PlanFromShapes(absl::Span<const TensorShape> tensors,
                                                         const ShapePlanOptions& options,
                                                         const MachineRates& rates);

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_PLAN_FROM_SHAPES_H_
