#ifndef PTQWATCH_STREAMED_CHECKPOINT_PLAN_H_
#define PTQWATCH_STREAMED_CHECKPOINT_PLAN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "streamed/measure_checkpoint.h"

namespace ptqwatch::internal {

/// Bytes that the parts of a streamed measurement hold. Of blocks, linears and tensors the
/// largest counts.
struct CheckpointBytes {
  int64_t tensor = 0;       ///< reading one tensor
  int64_t calibration = 0;  ///< the stream of calibration tokens
  int64_t probe = 0;        ///< the streams of the probe and the tasks of one quantizer
  int64_t noise = 0;        ///< the streams with noise
  int64_t along = 0;        ///< the streams along the error of one quantizer
  int64_t between = 0;      ///< a block's weights at a point along an error
  int64_t block = 0;        ///< a block's tensors
  int64_t reading = 0;      ///< in addition, while they are read
  int64_t grams = 0;        ///< of a block's inputs
  int64_t gram = 0;         ///< of one input
  int64_t drawing = 0;      ///< noise for a linear
  int64_t quantized = 0;    ///< a block's weights from one quantizer
  int64_t working = 0;      ///< quantizing a linear
  int64_t forward = 0;      ///< computing a block on SequencesTogether sequences
  int64_t head = 0;         ///< the head, and computing losses
  int64_t covered = 0;      ///< all quantized weights of one quantizer
  int64_t curvature = 0;    ///< CheckpointCost::curvature_bytes

  /// The most at a time, with this many quantizers in one pass over the blocks.
  int64_t Peak(int64_t quantizers) const;
  /// Same for one quantizer, but with Gram matrices of at most `held` bytes at a time: the
  /// calibration tokens pass the block once for each part, while quantized weights of earlier parts
  /// are there.
  int64_t PeakInParts(int64_t held) const;

 private:
  int64_t PeakOf(int64_t quantizers, int64_t quantizing) const;
};

/// REQUIRES: the arguments are valid for MeasureCheckpoint.
CheckpointBytes BytesOf(const Decoder& decoder, const TrajectoryData& data,
                        const CheckpointMeasurement& options);

/// How a checkpoint is measured within a budget.
struct CheckpointLayout {
  int64_t together = 0;    ///< quantizers that go through the blocks together
  bool curvature = false;  ///< whether the whole model fits
  /// Whether all quantized weights are kept, for curvature along their errors.
  bool keep_quantized = false;
  int64_t grams = 0;  ///< of the inputs of a block that are in memory at a time
  int64_t bytes = 0;  ///< without curvature
};

/// As many quantizers together as fit into `available` bytes. If not one does, it has the Gram
/// matrices of a block in parts. ResourceExhausted, naming the bytes needed, if that does not fit
/// either.
absl::StatusOr<CheckpointLayout> LayOut(const CheckpointBytes& bytes,
                                        const CheckpointMeasurement& options, int64_t available);

/// Bytes of computing a block with these linears on slices of sequences of `length` tokens.
int64_t ForwardBytes(const ModelConfig& config, absl::Span<const DecoderLinear> linears,
                     int64_t length);

/// `max_bytes`, or nine tenths of the free memory if it is 0.
int64_t BytesAllowed(int64_t max_bytes);

/// InvalidArgument, naming the tokens or the option and its value, unless a checkpoint can be
/// measured with them.
absl::Status CheckMeasurement(const Decoder& decoder, const TrajectoryData& data,
                              const CheckpointMeasurement& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_CHECKPOINT_PLAN_H_
