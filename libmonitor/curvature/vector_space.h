#ifndef PTQWATCH_CURVATURE_VECTOR_SPACE_H_
#define PTQWATCH_CURVATURE_VECTOR_SPACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"

namespace ptqwatch::internal {

class DeviceVectors;

/// An element of a VectorSpace. A handle: only VectorSpace::Copy copies the elements.
struct Vector {
  at::Tensor elements;
  bool defined() const { return elements.defined(); }
};

/// The space of gradients, eigenvectors and probe vectors: the elements of some parameters, one
/// part per parameter. Only this class knows how a vector is stored. Results do not depend on the
/// number of threads. Thread-safe, unless it uses a device's kernels. Those throw
/// std::runtime_error if the device fails; ATen's operators throw c10::Error.
class VectorSpace {
 public:
  struct Part {
    std::string name;
    std::vector<int64_t> sizes;
    int64_t elements = 0;
    int64_t offset = 0;
  };

  /// Vectors have the elements of `parameters` (name, tensor), in this order, as `dtype` on
  /// `device`.
  VectorSpace(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
              at::ScalarType dtype, at::Device device);

  /// Divides a part for sums over pieces. The pieces are consecutive, fill the part, and each has a
  /// name and a number of elements.
  void Split(size_t part, absl::Span<const std::pair<std::string, int64_t>> pieces);

  /// From now on sums and draws by kernels. REQUIRES: `kernels` has the elements of pieces().
  void UseKernels(std::shared_ptr<DeviceVectors> kernels) { kernels_ = std::move(kernels); }

  int64_t dimension() const { return dimension_; }
  const std::vector<Part>& parts() const { return parts_; }
  /// The units that sums are divided into: the parts, or the pieces of a part that was split.
  const std::vector<Part>& pieces() const { return pieces_; }
  int64_t bytes() const;  ///< of one vector
  at::ScalarType dtype() const { return options_.dtype().toScalarType(); }

  Vector Zero() const;
  Vector Copy(const Vector& x) const;
  /// The part as a tensor of the parameter's shape that shares the vector's memory.
  at::Tensor View(const Vector& x, size_t part) const;

  /// Inner products, accumulated in float64.
  double Dot(const Vector& x, const Vector& y) const;
  std::vector<double> DotByPiece(const Vector& x, const Vector& y) const;
  /// Returns the inner product of each of `xs` with y. Kernels read y once.
  std::vector<double> Dots(absl::Span<const Vector> xs, const Vector& y) const;
  double Norm(const Vector& x) const;
  /// ||x - y||
  double Distance(const Vector& x, const Vector& y) const;
  bool IsFinite(const Vector& x) const;

  /// y += a x
  void Axpy(double a, const Vector& x, Vector& y) const;
  /// Subtracts from y its components along the orthonormal `basis` and returns them: one after the
  /// other, or by kernels all together.
  std::vector<double> RemoveComponents(absl::Span<const Vector> basis, Vector& y) const;
  void Scale(double a, Vector& x) const;
  /// basis = {sum_i weights[0][i] basis[i], sum_i weights[1][i] basis[i], ...}, in the memory of
  /// the old basis: the number of vectors must not grow. Takes at most 2^24 elements of memory, on
  /// the CPU 2^16 a new vector.
  void Rotate(const std::vector<std::vector<double>>& weights, std::vector<Vector>& basis) const;
  /// y = x y, element by element
  void Multiply(const Vector& x, Vector& y) const;
  /// Sets every element to +1 or -1, depending only on the seed and the element's index: bit `i %
  /// 64` of word `i / 64` of a counter-based generator.
  void FillRademacher(uint64_t seed, Vector& x) const;

 private:
  double DotRange(const Vector& x, const Vector& y, int64_t begin, int64_t count) const;
  // By kernels: [xs.size(), pieces].
  std::vector<double> KernelDots(absl::Span<const Vector> xs, const Vector& y) const;

  std::vector<Part> parts_;
  std::vector<Part> pieces_;
  int64_t dimension_ = 0;
  at::TensorOptions options_;
  std::shared_ptr<DeviceVectors> kernels_;  // null: ATen's operators, on the CPU plain loops
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_VECTOR_SPACE_H_
