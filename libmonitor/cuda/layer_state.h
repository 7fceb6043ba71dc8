#ifndef PTQWATCH_CUDA_LAYER_STATE_H_
#define PTQWATCH_CUDA_LAYER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/device_quantizer.h"
#include "cuda/kernels/numbers.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// A layer's state in a DeviceQuantizer: its result memory, its next attempt and its outcome.
class LayerState {
 public:
  /// `layer` must have passed CheckLayer. Plans everything that does not depend on results.
  explicit LayerState(const DeviceLayer& layer);

  /// Takes memory for the results from `arena`. `numbers` is the layer's array of kNumberCount.
  absl::Status TakeResults(Arena& arena, double* numbers);

  const DeviceLayer& layer() const { return layer_; }
  const Attempt& attempt() const { return attempt_; }
  /// Whether attempt() still has to run.
  bool pending() const { return pending_; }
  void Enqueued() { pending_ = false; }
  /// Adds the layer to the group at position `i`.
  void AddTo(LayerGroup& group, int i) const;
  /// Uses the column order written by `other`, which has the same inputs.
  void ShareOrder(const LayerState& other) { order_ = other.order_; }

  /// Examines the numbers of the last attempt, and decides whether another is needed.
  void Judge(const double* numbers);
  /// The position of the weight whose value Finish needs as `bad_weight`, or -1.
  int64_t BadWeight(const double* numbers) const;
  /// Whether Finish needs the largest |x| of each input.
  bool NeedsAbsMax() const;
  /// The result. REQUIRES: nothing is pending.
  DeviceResult Finish(const double* numbers, float bad_weight,
                      const std::vector<float>& abs_max) const;

  /// The precision of the first computation of a loss.
  Precision FirstPrecision() const;

 private:
  int64_t size() const { return layer_.rows * layer_.cols; }
  void PlanRounding(LayerStatus status, std::string detail);
  void PlanMethod();
  bool RefuseMoments(double tokens);
  void ForgetMoments();
  void JudgeFactor(const double* numbers);
  void JudgeLosses(const double* numbers);
  bool Cancels(const double* numbers, int position) const;
  std::optional<double> Loss(const double* numbers, int position) const;
  void SetLosses(const double* numbers, QuantizedWeight* result) const;
  void SetFormat(const double* numbers, QuantizedWeight* result) const;
  void AddCounts(const double* numbers, QuantizedWeight* result) const;
  void SetSearch(const double* numbers, QuantizedWeight* result) const;
  bool WithoutCodes(const double* numbers, float bad_weight, QuantizedWeight* result) const;

  DeviceLayer layer_;
  Attempt attempt_;
  bool pending_ = true;
  bool has_rtn_loss_ = false;  // a baseline besides `loss`
  bool has_energy_ = false;
  bool loss_from_loop_ = false;
  LayerStatus status_ = LayerStatus::kOk;
  std::string detail_;

  uint8_t* codes_ = nullptr;
  float* dequantized_ = nullptr;
  float* scale_ = nullptr;
  float* zero_ = nullptr;
  float* channel_scale_ = nullptr;
  int32_t* order_ = nullptr;
  double* numbers_ = nullptr;
};

/// The same checks as Quantize.
absl::Status CheckLayer(const DeviceLayer& layer);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_LAYER_STATE_H_
