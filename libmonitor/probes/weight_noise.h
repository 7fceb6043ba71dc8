#ifndef PTQWATCH_PROBES_WEIGHT_NOISE_H_
#define PTQWATCH_PROBES_WEIGHT_NOISE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// How draws of noise are dealt out to batches. Evaluation e is of batch e % batches under draw
/// e % draws. With at least kFewestDraws batches each is evaluated once, so that noise costs as
/// much as one quantizer; fewer batches are repeated under other draws.
struct NoisePlan {
  static constexpr size_t kFewestDraws = 4;  ///< that give a standard error
  static constexpr size_t kMostDraws = 8;    ///< limit the time for drawing

  explicit NoisePlan(size_t number_of_batches);

  size_t batches = 0;
  size_t evaluations = 0;  ///< a multiple of `batches`
  size_t draws = 0;
};

/// Peak bytes of NoisyWeight for a weight of `elements`, the result included.
constexpr int64_t NoiseBytes(int64_t elements) { return 8 * elements; }

/// `weight` + N(0, s^2 mean(weight^2)) as a contiguous float32 tensor on the CPU, with the draw of
/// this number for the layer of this name. Depends on nothing but the arguments and
/// `context.seeds`. About 10 ns an element, which context.threads share. Cancelled,
/// DeadlineExceeded. May throw.
absl::StatusOr<at::Tensor> NoisyWeight(const at::Tensor& weight, double relative_norm,
                                       std::string_view layer, size_t draw,
                                       const ExecutionContext& context);

/// Compares the losses of the batches without noise, `full`, with those of every evaluation of
/// their NoisePlan. The standard error is clustered by draws and by units (sequences): V = V_draw +
/// V_unit - V_both (Cameron, Gelbach and Miller 2011), at least V_draw. Losses that are not finite
/// or were not weighted alike give a status without numbers.
NoiseReport CompareNoise(double relative_norm, absl::Span<const UnitLosses> full,
                         absl::Span<const UnitLosses> noisy);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_WEIGHT_NOISE_H_
