#ifndef PTQWATCH_TESTS_SUPPORT_DEVICE_RUN_H_
#define PTQWATCH_TESTS_SUPPORT_DEVICE_RUN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/compute_device.h"
#include "cuda/device_gram.h"
#include "cuda/device_quantizer.h"
#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"

namespace ptqwatch::testing {

/// Makes this program's test device with that much memory. If the machine has none, skips the test
/// and returns null.
std::unique_ptr<internal::ComputeDevice> MakeTestDevice(int64_t bytes = int64_t{64} << 20);

/// Returns whether layers that are quantized together get the same bits as alone. A library of
/// matrix products may add up in another order for a batch.
bool BatchesAreExact();

/// `x` rounded to a row type.
Matrix RoundedTo(internal::RowType type, const Matrix& x);

/// Waits, and copies a result to the host.
absl::StatusOr<QuantizedWeight> CopyToHost(internal::ComputeDevice& device,
                                           const internal::DeviceResult& result);

/// Puts matrices into a device's memory and quantizes them there. Releases the memory at the end.
/// Failures fail the test.
class DeviceRun {
 public:
  explicit DeviceRun(internal::ComputeDevice& device) : device_(device), scope_(device.arena()) {}

  internal::ComputeDevice& device() { return device_; }
  const float* Upload(const Matrix& matrix);
  /// Uploads rows that are already rounded to the type.
  internal::DeviceRows UploadRows(const Matrix& x, internal::RowType type);
  /// Sums the moments of `x` and finishes them.
  const internal::DeviceGram* Gram(const Matrix& x,
                                   internal::RowType type = internal::RowType::kFloat32);
  const internal::DeviceGram* Gram(const GramStatistics& statistics);
  internal::DeviceLayer Layer(const Matrix& weight, const internal::DeviceGram* gram,
                              const QuantizerSpec& spec);
  /// Quantizes through one DeviceQuantizer.
  std::vector<QuantizedWeight> Quantize(const std::vector<internal::DeviceLayer>& layers);

 private:
  internal::ComputeDevice& device_;
  internal::ArenaScope scope_;
  std::deque<internal::DeviceGram> grams_;
};

/// The allowed difference between `got` and `expected`.
struct Tolerance {
  double codes = 0.003;  ///< share that may differ
  double loss = 1e-3;    ///< relative
};
/// Expects equal grids, orders, statuses and counts, and codes and losses within the tolerance.
void ExpectAgrees(const QuantizedWeight& got, const QuantizedWeight& expected,
                  Tolerance tolerance = {});
/// Expects all fields to be equal bit for bit.
void ExpectIdentical(const QuantizedWeight& got, const QuantizedWeight& expected);
/// Checks the promise of BatchesAreExact.
void ExpectSameAlone(const QuantizedWeight& got, const QuantizedWeight& expected);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_DEVICE_RUN_H_
