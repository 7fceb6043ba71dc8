#ifndef PTQWATCH_CAPTURE_CAPTURE_PLAN_H_
#define PTQWATCH_CAPTURE_CAPTURE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "capture/product_watcher.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Why a parameter with fewer than two dimensions is skipped.
inline constexpr std::string_view kNotAMatrix = "not a matrix (a norm, a bias)";
/// Why a matrix of which rows are looked up is skipped.
inline constexpr std::string_view kEmbedding = "embedding";
/// Why the matrix that chooses among experts is skipped.
inline constexpr std::string_view kRouter = "router: its output goes into a top-k";

/// Identifies a parameter, or the part of a parameter that begins at an element.
struct WeightKey {
  int parameter = 0;  ///< index in the table
  bool part = false;
  int64_t first = 0;  ///< first element of the part
  friend auto operator<=>(const WeightKey&, const WeightKey&) = default;

  static WeightKey Of(const Product& product) {
    return {product.entry, product.part, product.first};
  }
};

/// A weight that the forward pass multiplies with activations, or looks rows up in, as a matrix
/// [m, d].
struct CoveredLayer {
  int entry = 0;  ///< in the replica, where parts of parameters are entries too
  WeightKey weight;
  std::string name;         ///< the parameter's name; for a part "NAME[2]", "NAME[2][0:64]"
  int64_t outputs = 0;      ///< m
  int64_t inputs = 0;       ///< d
  bool transposed = false;  ///< stored as [inputs, outputs]
  /// An embedding: of its m rows some are looked up. Every row counts alike, and so does every
  /// column of it, so that its Gram is that of one row for each column, the identity.
  bool table = false;
  int gram = 0;  ///< layers with the same inputs share a Gram matrix

  /// Converts a tensor of the weight's shape to a contiguous float32 [m, d] matrix on a device.
  at::Tensor AsMatrix(const at::Tensor& stored, at::Device device = at::Device(at::kCPU)) const;
  /// An [m, d] matrix with its dimensions in the stored weight's order.
  at::Tensor AsStored(const at::Tensor& matrix) const { return transposed ? matrix.t() : matrix; }
};

/// Which layers are quantized, and which of them share inputs.
struct CapturePlan {
  std::vector<CoveredLayer> layers;  ///< in order of first use
  std::vector<SkippedLayer> skipped;
  std::vector<SkippedLayer> unseen;  ///< those of `skipped` that Report::unseen counts
  std::vector<int64_t> gram_inputs;  ///< d of each Gram matrix
  /// The Grams in the order of sequential calibration. A Gram is complete at the last use of a
  /// layer; if several layers share it, at the earliest of their last uses.
  std::vector<int> stages;
  int64_t covered_parameters = 0;
  bool routed = false;  ///< a top-k of a product's outputs chooses experts

  std::optional<UnseenWeights> Unseen() const;
  /// Total bytes of these Grams.
  int64_t GramBytesOf(const std::vector<int>& grams) const;
  /// The Grams in order, split into runs of at most `max_bytes` each (or a single Gram).
  std::vector<std::vector<int>> Passes(int64_t max_bytes) const;
};

/// Bytes of the Gram matrix of a layer with `inputs` inputs.
constexpr int64_t GramBytes(int64_t inputs) { return 8 * inputs * inputs; }

/// Rows below which GPTQ would learn little of an expert: 32, or this share of the calibration's.
inline constexpr double kFewestExpertRows = 32;
inline constexpr double kFewestExpertShare = 0.005;
/// The spec of a layer: an expert (a layer of a stack, report/layer_groups.h) that met fewer rows
/// is rounded to nearest instead of by a method with QuantizerSpec::min_tokens_ratio. `rows` are
/// those of the calibration data. A ratio of 0 switches both rules off.
QuantizerSpec SpecWithRows(std::string_view layer, int64_t inputs, QuantizerSpec spec,
                           int64_t rows);

/// Batches in which PlanCapture looks for the inputs of a weight.
inline constexpr size_t kMostSurveyed = 8;

/// Plans from a forward pass of the first batch on the replica. While a weight has met no input,
/// like an expert that no token was sent to, looks for it in the next batches too, up to
/// kMostSurveyed. ProductWatcher defines what counts as a layer. A weight whose Gram matrix alone
/// exceeds `max_gram_bytes` is skipped for every method, so all quantizers cover the same layers.
/// Returns FailedPrecondition if the closure throws, if this build cannot read LibTorch's records,
/// or if no layer is left to quantize. REQUIRES: there is a batch.
absl::StatusOr<CapturePlan> PlanCapture(Replica& replica, absl::Span<const Batch> batches,
                                        const LayerSelection& selection, int64_t max_gram_bytes);

/// Runs one forward pass while `watcher` is alive. Returns FailedPrecondition if the closure throws
/// or the watcher met a problem.
absl::Status RunWatched(Replica& replica, const Batch& batch, const ProductWatcher& watcher);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_CAPTURE_PLAN_H_
