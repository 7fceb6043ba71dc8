#ifndef PTQWATCH_CAPTURE_MODEL_QUANTIZER_H_
#define PTQWATCH_CAPTURE_MODEL_QUANTIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "capture/activation_capture.h"
#include "capture/capture_plan.h"
#include "capture/quantize_backend.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/quantizer.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// One spec per layer of the plan.
using LayerSpecs = std::vector<QuantizerSpec>;

/// Receives layer `layer` of the plan as quantized by one quantizer, in the order of the work:
/// quantizers that share statistics take each layer in turn. `gram` is valid during the call, and
/// null without statistics.
using OnQuantizedLayer = absl::FunctionRef<void(size_t quantizer, size_t layer,
                                                const LayerGram* gram, QuantizedMatrix result)>;

/// How ModelQuantizer::Run ended.
struct QuantizationRun {
  struct Quantizer {
    absl::Status status;  ///< ok if all its layers were quantized
    double seconds = 0;   ///< work shared by several quantizers counts for the first
  };
  std::vector<Quantizer> quantizers;
  /// Captures that served several quantizers, and their time, which no quantizer's seconds include.
  int captures = 0;
  double capture_seconds = 0;
};

/// Quantizes all layers of a plan, calibrated on activations of the replica's loaded weights.
///   one_shot    every layer sees full-precision inputs. The Grams are captured in as few passes
///               over the calibration data as `max_gram_bytes` allows, each for all quantizers.
///               All quantizers of a layer run in a row and share their common work.
///   sequential  each quantizer that needs statistics goes through the plan's stages; a stage
///               captures one Gram with the layers of earlier stages quantized, and then quantizes
///               its layers. The other quantizers run as in one_shot.
/// The result does not depend on `max_gram_bytes`.
class ModelQuantizer {
 public:
  struct Options {
    CalibrationMode mode = CalibrationMode::kOneShot;
    int64_t max_gram_bytes = 0;
    bool stored_sizes = false;  ///< also find QuantizedMatrix::stored
  };
  /// All arguments must outlive the ModelQuantizer.
  ModelQuantizer(Replica& replica, const CapturePlan& plan, const std::vector<Batch>& calibration,
                 QuantizeBackend& backend, const Options& options)
      : replica_(replica),
        plan_(plan),
        calibration_(calibration),
        backend_(backend),
        options_(options) {}

  /// Each element of `quantizers` has one spec per layer. A quantizer's failure does not affect the
  /// others: if statistics cannot be captured, quantizers without them still run. On return the
  /// replica has its own weights and no lease is alive.
  QuantizationRun Run(const std::vector<LayerSpecs>& quantizers, OnQuantizedLayer on_layer,
                      const ExecutionContext& context) const;

  /// How often Run takes the calibration data through the replica for shared statistics.
  int64_t SharedPasses(const std::vector<LayerSpecs>& quantizers) const;
  /// How often Run does so for this quantizer alone.
  int64_t OwnPasses(const LayerSpecs& specs) const;

 private:
  void RunShared(const std::vector<LayerSpecs>& quantizers, const std::vector<size_t>& which,
                 OnQuantizedLayer on_layer, QuantizationRun& run,
                 const ExecutionContext& context) const;
  absl::Status RunSequential(size_t quantizer, const LayerSpecs& specs, OnQuantizedLayer on_layer,
                             const ExecutionContext& context) const;
  // Quantizes the layers whose Gram belongs to the pass, under each quantizer that has not failed.
  void QuantizePass(const std::vector<LayerSpecs>& quantizers, const std::vector<size_t>& which,
                    const std::vector<int>& pass, const CapturedGrams& captured,
                    OnQuantizedLayer on_layer, QuantizationRun& run,
                    const ExecutionContext& context) const;
  at::Tensor MatrixOf(size_t layer) const;

  Replica& replica_;
  const CapturePlan& plan_;
  const std::vector<Batch>& calibration_;
  QuantizeBackend& backend_;
  const Options options_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_MODEL_QUANTIZER_H_
