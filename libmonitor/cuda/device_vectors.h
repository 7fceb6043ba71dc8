#ifndef PTQWATCH_CUDA_DEVICE_VECTORS_H_
#define PTQWATCH_CUDA_DEVICE_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"
#include "cuda/kernels/vector_kernels.h"

namespace ptqwatch::internal {

/// Draws and sums over vectors in a device's memory, for T = float and double. All vectors have the
/// same number of elements and are cut into the same consecutive pieces. The same calls give the
/// same bits. Errors are those of the device. Not thread-safe.
class DeviceVectors {
 public:
  /// Cuts vectors into pieces of these sizes. Takes Bytes(sizes) from the device's arena for the
  /// lifetime of the caller's ArenaScope, and waits. `device` must outlive the result.
  static absl::StatusOr<DeviceVectors> Create(ComputeDevice& device,
                                              std::span<const int64_t> sizes);
  static int64_t Bytes(std::span<const int64_t> sizes);

  /// Sets element i to +1 or -1 by bit i % 64 of RandomWord(seed, i / 64). Does not wait.
  template <typename T>
  absl::Status FillSigns(uint64_t seed, T* x);
  /// Inner products in float64 by vector and piece, [xs.size(), pieces]. Waits.
  template <typename T>
  absl::StatusOr<std::vector<double>> Dots(std::span<const T* const> xs, const T* y);
  /// y += the sum of factors[i] xs[i]. Does not wait.
  template <typename T>
  absl::Status Add(std::span<const double> factors, std::span<const T* const> xs, T* y);

 private:
  // Pieces are cut further, so that many blocks of threads work on each.
  struct Cut {
    std::vector<VectorPiece> parts;
    std::vector<size_t> piece_of;  // for each part
    size_t pieces = 0;
    int64_t elements = 0;
  };
  static Cut CutPieces(std::span<const int64_t> sizes);

  DeviceVectors(ComputeDevice& device, Cut cut) : device_(&device), cut_(std::move(cut)) {}

  ComputeDevice* device_;
  Cut cut_;
  VectorPiece* table_ = nullptr;
  double* sums_ = nullptr;  // [kMaxBatch, parts]
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_DEVICE_VECTORS_H_
