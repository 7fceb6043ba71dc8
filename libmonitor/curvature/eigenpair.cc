#include "curvature/eigenpair.h"

#include <algorithm>
#include <chrono>

#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "curvature/lanczos.h"

namespace ptqwatch::internal {
namespace {

// Further basis vectors do not save products.
constexpr int64_t kMaxBasis = 24;
constexpr int64_t kMinBasis = 3;
// Besides the basis: the newest product, the eigenvector and the secondary vector.
constexpr int64_t kOtherVectors = 3;

int64_t AvailableBytes(int64_t max_bytes, const ExecutionContext& context) {
  if (context.bytes == nullptr) return max_bytes;
  return std::min(max_bytes, context.bytes->limit() - context.bytes->used());
}

}  // namespace

int64_t MinSearchVectors(const VectorSpace& space) {
  return std::min(kMinBasis, space.dimension()) + kOtherVectors;
}

absl::Status CheckVectorMemory(const VectorSpace& space, int64_t vectors, int64_t max_bytes,
                               const ExecutionContext& context) {
  const int64_t needed = vectors * space.bytes();
  const int64_t available = AvailableBytes(max_bytes, context);
  if (needed <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("the search for eigenvalues needs ", needed,
                                             " bytes for ", vectors, " vectors, the limit is ",
                                             available));
}

absl::StatusOr<EigenpairSearch> ExtremeEigenpair(SymmetricOperator& hessian, const WarmStart& start,
                                                 const EigenpairOptions& options,
                                                 absl::Span<const Vector> deflated,
                                                 const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  if (space.bytes() == 0) {
    return absl::FailedPreconditionError("the space of the Hessian is empty");
  }
  // A space needs no more vectors than it has dimensions.
  const int64_t useful = std::min(kMaxBasis, space.dimension());
  const int64_t basis =
      std::min(useful, AvailableBytes(options.max_bytes, context) / space.bytes() - kOtherVectors);
  const int64_t vectors = std::max(basis + kOtherVectors, MinSearchVectors(space));
  PTQWATCH_RETURN_IF_ERROR(CheckVectorMemory(space, vectors, options.max_bytes, context));
  Reservation reservation(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(
      reservation.Take(vectors * space.bytes(), "the search for an eigenvalue"));
  const auto begin = context.clock->Monotonic();
  absl::StatusOr<EigenpairSearch> search =
      Lanczos(hessian, start, options, deflated, basis, context);
  if (search.ok()) {
    search->pair.seconds =
        std::chrono::duration<double>(context.clock->Monotonic() - begin).count();
  }
  return search;
}

}  // namespace ptqwatch::internal
