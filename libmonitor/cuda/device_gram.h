#ifndef PTQWATCH_CUDA_DEVICE_GRAM_H_
#define PTQWATCH_CUDA_DEVICE_GRAM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"
#include "cuda/kernels/gram_kernels.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// Second moments of a layer's inputs in a device's memory.
struct DeviceMoments {
  int64_t inputs = 0;
  double* sum = nullptr;      ///< [inputs, inputs]; both triangles after Finish
  double* abs_sum = nullptr;  ///< [inputs]
  float* abs_max = nullptr;   ///< [inputs]
  int64_t* counts = nullptr;  ///< finite rows, which are summed, and other rows
};

/// Sums X^T X over rows in a device's memory: GramAccumulator on a device. Only CopyToHost and
/// FromHost wait for the device. The same calls give the same bits.
///
/// With up to 256 inputs, sums are float64. With more, matrix units sum products in float32 over
/// some 8192 rows, and these sums are added in float64: an entry is off by less than 2^-13 of the
/// sum of all |x_i x_j|. bfloat16 and float16 rows are used as they are; their products are exact
/// in float32. A float32 number is split into the sum of two bfloat16, at four times the cost;
/// device_gram.cc gives the reason.
///
/// bfloat16 and float16 rows are read in place if inputs and stride are multiples of 8 numbers and
/// the data begins at a multiple of 16 bytes; the float64 sums are then touched once for 32,768
/// rows of a call. If a row is not finite, the rows that were summed with it in float32 are summed
/// again without it and without matrix units, at some fifty times the cost by arithmetic.
class DeviceGram {
 public:
  /// Takes Bytes(inputs) from the device's arena, for the lifetime of the caller's ArenaScope.
  static absl::StatusOr<DeviceGram> Create(ComputeDevice& device, int64_t inputs);
  /// Uploads finished moments that were summed elsewhere; may wait. `abs_sum` and `abs_max` may be
  /// empty and are then zeros. Returns InvalidArgument if sizes do not match.
  static absl::StatusOr<DeviceGram> FromHost(ComputeDevice& device,
                                             const GramStatistics& statistics);
  /// A finished sum of many rows without memory, only for DeviceQuantizer::WorkingBytes.
  static DeviceGram OfShape(ComputeDevice& device, int64_t inputs);
  /// 8 inputs^2 plus a small amount.
  static int64_t Bytes(int64_t inputs);
  /// The arena memory that suffices for Add with this many rows, in place or not.
  static int64_t WorkingBytes(int64_t inputs, int64_t rows, RowType type);

  /// Adds the rows, which must not change until the device has read them. Errors: InvalidArgument
  /// for other shapes and null pointers, and after Finish; those of the device; Cancelled,
  /// DeadlineExceeded. After any error except InvalidArgument the sums are unusable.
  absl::Status Add(const DeviceRows& rows, const ExecutionContext& context = {});
  /// Fills in the lower triangle. Call once, after the last Add.
  absl::Status Finish(const ExecutionContext& context = {});

  const DeviceMoments& moments() const { return moments_; }
  /// The number of rows added, finite or not.
  int64_t rows() const { return rows_; }
  bool finished() const { return finished_; }

  /// Waits, and copies the moments to the host. Returns FailedPrecondition before Finish.
  absl::StatusOr<GramStatistics> CopyToHost() const;

 private:
  DeviceGram(ComputeDevice& device, int64_t inputs) : device_(&device) { moments_.inputs = inputs; }

  // Buffers for the rows of a chunk on their way into the product.
  struct Staging {
    bool in_place = false;
    int64_t rows = 0;  // the most of a chunk
    uint16_t* bits16 = nullptr;
    uint16_t* rest16 = nullptr;
    double* wide = nullptr;
    uint8_t* finite = nullptr;
    int64_t* skipped = nullptr;
    double* sums = nullptr;
    float* maxima = nullptr;
    float* panel = nullptr;
  };
  static absl::StatusOr<Staging> TakeStaging(int64_t inputs, int64_t rows, RowType type,
                                             bool in_place, Arena& arena);
  absl::Status AddChunk(const DeviceRows& rows, const Staging& staging, Queue& queue);
  absl::Status Stage(const DeviceRows& rows, int64_t first, const Staging& staging, Queue& queue);

  ComputeDevice* device_;
  DeviceMoments moments_;
  int64_t rows_ = 0;
  bool finished_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_DEVICE_GRAM_H_
