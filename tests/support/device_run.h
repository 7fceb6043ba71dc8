#ifndef PTQWATCH_TESTS_SUPPORT_DEVICE_RUN_H_
#define PTQWATCH_TESTS_SUPPORT_DEVICE_RUN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cuda/compute_device.h"
#include "cuda/device_gram.h"
#include "cuda/device_quantizer.h"
#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"

namespace ptqwatch::testing {

/// The device that this program tests, with that much memory. Null, with the test skipped, where
/// the machine has none.
std::unique_ptr<internal::ComputeDevice> MakeTestDevice(int64_t bytes = int64_t{64} << 20);

/// Whether layers that go together have the bits that they have alone. A library of matrix products
/// may add up in another order for a batch.
bool BatchesAreExact();

/// `x` rounded to a row type.
Matrix RoundedTo(internal::RowType type, const Matrix& x);

/// Puts matrices into a device's memory and quantizes them there. What it takes is returned when it
/// ends. Failures are those of the test.
class DeviceRun {
 public:
  explicit DeviceRun(internal::ComputeDevice& device) : device_(device), scope_(device.arena()) {}

  internal::ComputeDevice& device() { return device_; }
  const float* Upload(const Matrix& matrix);
  /// Rows that are already rounded to the type.
  internal::DeviceRows UploadRows(const Matrix& x, internal::RowType type);
  /// The moments of `x`, finished.
  const internal::DeviceGram* Gram(const Matrix& x,
                                   internal::RowType type = internal::RowType::kFloat32);
  const internal::DeviceGram* Gram(const GramStatistics& statistics);
  internal::DeviceLayer Layer(const Matrix& weight, const internal::DeviceGram* gram,
                              const QuantizerSpec& spec);
  /// Through one DeviceQuantizer.
  std::vector<QuantizedWeight> Quantize(const std::vector<internal::DeviceLayer>& layers);

 private:
  internal::ComputeDevice& device_;
  internal::ArenaScope scope_;
  std::deque<internal::DeviceGram> grams_;
};

/// How far `got` may be from `expected`.
struct Tolerance {
  double codes = 0.003;  ///< share that may differ
  double loss = 1e-3;    ///< relative
};
/// Grids, orders, statuses and counts are equal; codes and losses within the tolerance.
void ExpectAgrees(const QuantizedWeight& got, const QuantizedWeight& expected,
                  Tolerance tolerance = {});
/// All fields are, to the bit.
void ExpectIdentical(const QuantizedWeight& got, const QuantizedWeight& expected);
/// What BatchesAreExact promises.
void ExpectSameAlone(const QuantizedWeight& got, const QuantizedWeight& expected);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_DEVICE_RUN_H_
