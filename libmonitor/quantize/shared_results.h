#ifndef PTQWATCH_QUANTIZE_SHARED_RESULTS_H_
#define PTQWATCH_QUANTIZE_SHARED_RESULTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/feedback_matrix.h"

namespace ptqwatch::internal {

/// Intermediate results shared by the quantizers of one layer. Each is computed on first use; a
/// failure is not kept, so the next call computes again. Not thread-safe.
class SharedResults {
 public:
  template <typename T>
  using Compute = absl::FunctionRef<absl::StatusOr<T>()>;
  using Loss = std::optional<double>;

  /// Numbers of inputs by kind.
  struct Columns {
    int64_t dead = 0;
    int64_t duplicate = 0;
  };

  absl::StatusOr<std::string> NonFinite(Compute<std::string> compute) {
    return Remember(non_finite_, compute);
  }
  absl::StatusOr<Columns> ColumnCounts(Compute<Columns> compute) {
    return Remember(columns_, compute);
  }
  absl::StatusOr<Loss> OutputEnergy(Compute<Loss> compute) { return Remember(energy_, compute); }
  /// The loss of round-to-nearest on the grid of `spec`, fitted to the weight or, if `live_only`,
  /// to the weight with the columns of dead inputs set to zero.
  absl::StatusOr<Loss> RtnLoss(const QuantizerSpec& spec, bool live_only, Compute<Loss> compute);

  /// GPTQ's factor for this order and damping. FailedPrecondition if H cannot be factorised; this
  /// error is kept. Keeps only the latest factor, with its memory reserved from `context`; it is
  /// valid until the next call of Feedback or DropFeedback.
  absl::StatusOr<const FeedbackMatrix*> Feedback(QuantizationOrder order, double damp,
                                                 int64_t inputs, Compute<FeedbackMatrix> compute,
                                                 const ExecutionContext& context);
  /// Drops the factor. Returns false if there was none.
  bool DropFeedback() { return std::exchange(feedback_, nullptr) != nullptr; }

 private:
  struct Rounded {
    QuantizerSpec grid;  // only the fields that decide the grid; others are defaults
    bool live_only = false;
    Loss loss;
  };
  struct Factor {
    QuantizationOrder order;
    double damp;
    std::optional<FeedbackMatrix> matrix;
    Reservation bytes;
  };
  struct Failure {
    QuantizationOrder order;
    double damp;
    absl::Status status;
  };

  template <typename T>
  static absl::StatusOr<T> Remember(std::optional<T>& value, Compute<T> compute) {
    if (!value.has_value()) {
      absl::StatusOr<T> computed = compute();
      if (!computed.ok()) return computed.status();
      value = *std::move(computed);
    }
    return *value;
  }

  std::optional<std::string> non_finite_;
  std::optional<Columns> columns_;
  std::optional<Loss> energy_;
  std::vector<Rounded> rounded_;
  std::unique_ptr<Factor> feedback_;
  std::vector<Failure> failures_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_SHARED_RESULTS_H_
