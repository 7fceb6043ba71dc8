#ifndef PTQWATCH_MONITOR_COST_MODEL_H_
#define PTQWATCH_MONITOR_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "monitor/planner.h"
#include "ptqwatch/offline/plan_from_shapes.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// What a snapshot costs, from shapes alone. Nothing here needs the model. FLOP count a
/// multiply-add as two.

/// A matrix that the forward pass multiplies every token with.
struct ProductShape {
  int64_t outputs = 0;
  int64_t inputs = 0;
  int gram = -1;  ///< in ModelShapes::gram_inputs; -1: the matrix is not quantized
};

/// A language model as its tensors' shapes show it.
struct ModelShapes {
  int64_t parameters = 0;
  int64_t tensor_bytes = 0;  ///< of parameters and buffers
  std::vector<ProductShape> products;
  std::vector<int64_t> gram_inputs;  ///< of each distinct input of the quantized matrices
  int64_t attention_blocks = 0;
  int64_t attention_width = 0;
  int64_t attention_heads = 1;

  int64_t quantized_parameters() const;
};

/// The data of a monitor. Probe and calibration batches have the same shape.
struct DataShapes {
  int64_t probe_batches = 0;
  int64_t calibration_batches = 0;
  int64_t batch_sequences = 0;
  int64_t sequence_tokens = 0;
  int64_t curvature_sequences = 0;
  int64_t averaged_snapshots = 0;

  int64_t batch_tokens() const { return batch_sequences * sequence_tokens; }
};

double GramFlop(int64_t tokens, int64_t inputs);
/// Of one [outputs, inputs] weight, without its Gram matrix.
double QuantizeFlop(const QuantizerSpec& spec, int64_t outputs, int64_t inputs);

/// Seconds of evaluating one batch of so many sequences.
double ForwardSeconds(const ModelShapes& model, int64_t sequences, int64_t sequence_tokens,
                      const MachineRates& rates);
/// The fewest batches that a plan may have: enough loss values for a standard error, and enough
/// tokens that Gram matrices are not far from full rank.
int64_t MinProbeBatches(int64_t units_a_batch);
int64_t MinCalibrationBatches(int64_t most_inputs, int64_t tokens_a_batch);

PlanRange RangeFromShapes(const ModelShapes& model, const DataShapes& data, int64_t quantizers);
/// Where the Gram matrices need several passes over the calibration data, each is counted.
SnapshotCosts CostsFromShapes(const ModelShapes& model, const DataShapes& data,
                              const std::vector<QuantizerSpec>& quantizers, int64_t max_gram_bytes,
                              const MachineRates& rates);

/// How often the calibration data is run through the model, where all Gram matrices (8 bytes times
/// the square of each's inputs) together exceed `max_bytes`, and the largest run that is held at a
/// time.
struct GramPasses {
  int64_t passes = 0;
  int64_t largest_bytes = 0;
};
GramPasses PassesOver(const std::vector<int64_t>& gram_inputs, int64_t max_bytes);
/// Bytes of the parts of a monitor, each at its largest.
struct SnapshotBytes {
  int64_t staging = 0;
  int64_t replica = 0;
  int64_t quantized = 0;  ///< float copies of the quantized weights, one a quantizer
  int64_t grams = 0;      ///< of one pass
  int64_t factors = 0;    ///< of the layer that is being quantized
  int64_t forward = 0;    ///< activations of one batch
  int64_t optimizer = 0;  ///< second moments, of an optimizer of Adam's kind
  int64_t averages = 0;   ///< snapshots that are averaged, and their mean
  int64_t vectors = 0;    ///< of the search for eigenvalues
  int64_t graphs = 0;     ///< of gradients and products on the curvature batch

  int64_t held() const { return staging + replica + optimizer + averages; }
  /// The parts that are there at the same time: first Grams, then losses, then curvature.
  int64_t peak() const;
};
SnapshotBytes BytesFromShapes(const ModelShapes& model, const DataShapes& data, const Plan& plan,
                              const std::vector<QuantizerSpec>& quantizers, int64_t max_gram_bytes);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_COST_MODEL_H_
