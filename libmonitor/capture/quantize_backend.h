#ifndef PTQWATCH_CAPTURE_QUANTIZE_BACKEND_H_
#define PTQWATCH_CAPTURE_QUANTIZE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "capture/layer_input.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// The second moments of a layer's inputs, wherever a backend keeps them.
class LayerGram {
 public:
  virtual ~LayerGram() = default;
  virtual int64_t tokens() const = 0;
  virtual int64_t skipped_rows() const = 0;
};

/// Second moments that are being summed.
class GramSum {
 public:
  virtual ~GramSum() = default;
  /// Errors as those of GramAccumulator::Add; after one the sums are of no more use. May throw
  /// c10::Error.
  virtual absl::Status Add(const LayerInput& input, const ExecutionContext& context) = 0;
  /// Moves the sums out. Once, after the last Add.
  virtual absl::StatusOr<std::unique_ptr<LayerGram>> Take(const ExecutionContext& context) = 0;
};

/// A quantized weight [m, d] of a model.
struct QuantizedMatrix {
  /// Without codes and dequantized where `on_device` is defined.
  QuantizedWeight weight;
  /// The dequantized weight, float32, where it was quantized on a device.
  at::Tensor on_device = {};
  double squared_displacement = 0;  ///< |W_hat - W|^2; 0 without codes

  /// The dequantized weight while this lives and does not change; undefined where the layer has no
  /// codes and stays as it is.
  at::Tensor View(int64_t rows, int64_t cols) const;
  /// The same, moved out.
  at::Tensor Take(int64_t rows, int64_t cols);
};

/// What Gram matrices are summed and weights quantized with: the engine on the host, or the same
/// algorithm on a GPU. One thread at a time.
class QuantizeBackend {
 public:
  /// One weight under one quantizer.
  struct Task {
    at::Tensor weight;                ///< [m, d] float32, contiguous, on device()
    const LayerGram* gram = nullptr;  ///< of this backend; null where there are no statistics
    QuantizerSpec spec;
  };
  /// Receives the outcome of a task: any order, once each.
  using OnDone = absl::FunctionRef<void(size_t task, absl::StatusOr<QuantizedMatrix> result)>;

  virtual ~QuantizeBackend() = default;

  /// Where it reads weights.
  virtual at::Device device() const = 0;
  /// Weights that it likes to be given at a time, those of one layer under every quantizer counted
  /// once; 0: a layer.
  virtual int64_t weights_together() const = 0;
  /// Sums for a layer with so many inputs. Taken Grams and their sums live no longer than the
  /// backend.
  virtual absl::StatusOr<std::unique_ptr<GramSum>> Sum(int64_t inputs) = 0;
  /// Quantizes each task's weight, those of one weight in a row. Results do not depend on what else
  /// is given. May throw c10::Error.
  virtual void Quantize(absl::Span<const Task> tasks, OnDone done,
                        const ExecutionContext& context) = 0;
};

/// The engine on the host: GramAccumulator and LayerQuantizer.
class HostBackend final : public QuantizeBackend {
 public:
  at::Device device() const override { return at::Device(at::kCPU); }
  int64_t weights_together() const override { return 0; }
  absl::StatusOr<std::unique_ptr<GramSum>> Sum(int64_t inputs) override;
  void Quantize(absl::Span<const Task> tasks, OnDone done,
                const ExecutionContext& context) override;
  static std::unique_ptr<LayerGram> Wrap(GramStatistics statistics);
  /// REQUIRES: a Gram of a HostBackend.
  static const GramStatistics& StatisticsOf(const LayerGram& gram);
};

/// What a backend has to hold at a time: the Grams of the largest pass, and the work on a layer.
struct BackendNeeds {
  struct Layer {
    int64_t outputs = 0;
    int64_t inputs = 0;
    QuantizerSpec spec;
  };
  std::vector<int64_t> gram_inputs = {};
  std::vector<Layer> layers = {};  ///< each under each quantizer
};

/// The backend for a replica on `device`, made on a thread whose current stream is the one that is
/// measured on. `reserve` is asked before memory of the device is taken for good. Where the device
/// cannot be used for this, the host is, and the log says why.
std::unique_ptr<QuantizeBackend> MakeBackend(at::Device device, const BackendNeeds& needs,
                                             absl::FunctionRef<absl::Status(int64_t)> reserve);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_QUANTIZE_BACKEND_H_
