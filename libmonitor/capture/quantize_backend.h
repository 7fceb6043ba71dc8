#ifndef PTQWATCH_CAPTURE_QUANTIZE_BACKEND_H_
#define PTQWATCH_CAPTURE_QUANTIZE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "capture/layer_input.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/stored_size.h"

namespace ptqwatch::internal {

/// The second moments of a layer's inputs, in the backend's memory.
class LayerGram {
 public:
  virtual ~LayerGram() = default;
  virtual int64_t tokens() const = 0;
  virtual int64_t skipped_rows() const = 0;
};

/// Accumulates second moments.
class GramSum {
 public:
  virtual ~GramSum() = default;
  /// Errors as GramAccumulator::Add; after an error the sums are unusable. May throw c10::Error.
  virtual absl::Status Add(const LayerInput& input, const ExecutionContext& context) = 0;
  /// Moves the sums out. Call once, after the last Add.
  virtual absl::StatusOr<std::unique_ptr<LayerGram>> Take(const ExecutionContext& context) = 0;
};

/// A quantized weight [m, d] of a model.
struct QuantizedMatrix {
  /// Has no codes and no dequantized values if `on_device` is defined.
  QuantizedWeight weight;
  /// The dequantized weight, float32, if it was quantized on a device.
  at::Tensor on_device = {};
  double squared_displacement = 0;        ///< |W_hat - W|^2; 0 without codes
  std::optional<StoredSize> stored = {};  ///< if the task asked for it and there are codes

  /// The dequantized weight, valid until this object changes or is destroyed. Undefined if the
  /// layer has no codes and keeps its weight.
  at::Tensor View(int64_t rows, int64_t cols) const;
  /// Same, moved out.
  at::Tensor Take(int64_t rows, int64_t cols);
};

/// Sums Gram matrices and quantizes weights: the engine on the host, or the same algorithm on a
/// GPU. Not thread-safe.
class QuantizeBackend {
 public:
  /// One weight under one quantizer.
  struct Task {
    at::Tensor weight;                ///< [m, d] float32, contiguous, on device()
    const LayerGram* gram = nullptr;  ///< of this backend; null without statistics
    QuantizerSpec spec;
    bool stored_size = false;  ///< also find QuantizedMatrix::stored
  };
  /// Receives the result of a task. Called once per task, in any order.
  using OnDone = absl::FunctionRef<void(size_t task, absl::StatusOr<QuantizedMatrix> result)>;

  virtual ~QuantizeBackend() = default;

  /// The device on which it reads weights.
  virtual at::Device device() const = 0;
  /// The preferred number of weights per call of Quantize, where one layer under every quantizer
  /// counts once; 0 means one layer.
  virtual int64_t weights_together() const = 0;
  /// Starts sums for a layer with this many inputs. The sums and the Grams taken from them must not
  /// outlive the backend.
  virtual absl::StatusOr<std::unique_ptr<GramSum>> Sum(int64_t inputs) = 0;
  /// Quantizes each task's weight. Tasks of one weight must be adjacent. A result does not depend
  /// on the other tasks. May throw c10::Error.
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

/// The data that a backend holds at a time: the Grams of the largest pass, and the work on a layer.
struct BackendNeeds {
  struct Layer {
    int64_t outputs = 0;
    int64_t inputs = 0;
    QuantizerSpec spec;
  };
  std::vector<int64_t> gram_inputs = {};
  std::vector<Layer> layers = {};  ///< each layer under each quantizer
};

/// Makes the backend for a replica on `device`. A device's backend has quantized a layer of each
/// shape, so that its code is loaded. Call it on a thread whose current stream is the measuring
/// stream. Asks `reserve` before it takes device memory for good. Falls back to the host,
/// and logs the reason, if the device cannot be used.
std::unique_ptr<QuantizeBackend> MakeBackend(at::Device device, const BackendNeeds& needs,
                                             absl::FunctionRef<absl::Status(int64_t)> reserve);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_QUANTIZE_BACKEND_H_
