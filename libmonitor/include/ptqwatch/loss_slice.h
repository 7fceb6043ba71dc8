#ifndef PTQWATCH_LOSS_SLICE_H_
#define PTQWATCH_LOSS_SLICE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ptqwatch {

inline constexpr int kMinSlicePoints = 2;
inline constexpr int kMaxSlicePoints = 101;

/// Asks for a slice through the loss surface: the plane through the weights of two snapshots,
/// Theta_{K-1} and Theta_K, and the quantized Theta_K.
struct SliceRequest {
  std::string method;  ///< one of the run's quantizers, as reports name it: "gptq"
  int bits = 0;
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// Theta_K is the first snapshot at or after this step, Theta_{K-1} the newest one measured
  /// before it. Unset: they are the next two that are taken.
  std::optional<int64_t> at_step = {};
};

/// How far the newest slice has come.
enum class SliceState : int {
  kNone = 0,              ///< none was asked for
  kWaitingForFirst = 1,   ///< for the snapshot that is Theta_{K-1}
  kWaitingForSecond = 2,  ///< for Theta_K; the weights of Theta_{K-1} are kept
  kMeasuring = 3,
  kDone = 4,
  kFailed = 5,
};
/// "none", "waiting_for_first", "waiting_for_second", "measuring", "done", "failed".
std::string_view ToString(SliceState state);

/// Of the newest slice that was asked for.
struct SliceStatus {
  SliceState state = SliceState::kNone;
  int64_t number = 0;  ///< 1 for the first slice of this process, ...
  SliceRequest request = {};
  int64_t points_done = 0;
  int64_t points_all = 0;
  std::string path = {};   ///< of the file; kDone only
  std::string error = {};  ///< kFailed only

  bool under_way() const {
    return state == SliceState::kWaitingForFirst || state == SliceState::kWaitingForSecond ||
           state == SliceState::kMeasuring;
  }
};

/// A place in the plane and the mean loss there. Coordinates are distances from Theta_K over
/// ||Theta_K||: x along Theta_{K-1} - Theta_K, y along the part of the quantization error that is
/// orthogonal to it. NaN where the loss is not finite.
struct SlicePoint {
  double x = 0;
  double y = 0;
  double loss_nats = std::numeric_limits<double>::quiet_NaN();
};

/// The mean loss, in nats per token, over a plane in the space of all floating-point parameters.
struct LossSlice {
  int schema_version = 1;
  std::string run_id = {};
  std::string fingerprint = {};
  int64_t step = 0;           ///< of Theta_K
  int64_t previous_step = 0;  ///< of Theta_{K-1}
  std::string method = {};
  int bits = 0;
  int group_size = 0;
  double weight_norm = 0;  ///< ||Theta_K||, the unit of the coordinates
  int64_t parameters = 0;  ///< the space's dimension
  int64_t batch_tokens = 0;

  SlicePoint current = {};  ///< Theta_K, the origin
  SlicePoint previous = {};
  SlicePoint quantized = {};

  std::vector<double> x = {};                       ///< ascending
  std::vector<double> y = {};                       ///< ascending
  std::vector<std::vector<double>> loss_nats = {};  ///< [y][x]

  int64_t loss_evaluations = 0;  ///< over all batches
  double seconds = 0;
};

/// The slice as JSON with the names above, in that order; a loss that is not finite is null.
std::string ToJson(const LossSlice& slice);

}  // namespace ptqwatch

#endif  // PTQWATCH_LOSS_SLICE_H_
