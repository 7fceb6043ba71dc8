#include "snapshot/parameter_digest.h"

#include <algorithm>
#include <cstdint>

#include "ATen/core/grad_mode.h"
#include "base/digest.h"
#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

// Bytes read between two checks of the context, and copied from a device at once.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

}  // namespace

absl::StatusOr<std::string> DigestOfParameters(const Replica& replica,
                                               const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Digest digest;
  const std::vector<TensorEntry>& entries = replica.table().entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].is_parameter) continue;
    const at::Tensor loaded = replica.loaded(static_cast<int>(i));
    // The parameter is dense, with any strides, so its elements are consecutive bytes.
    const at::Tensor flat = loaded.as_strided({loaded.numel()}, {1});
    const int64_t at_a_time = kPieceBytes / static_cast<int64_t>(loaded.element_size());
    for (int64_t first = 0; first < flat.numel(); first += at_a_time) {
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
      const at::Tensor piece =
          flat.narrow(0, first, std::min(at_a_time, flat.numel() - first)).cpu();
      digest.AddBytes(piece.const_data_ptr(), piece.nbytes());
    }
  }
  return digest.Hex();
}

}  // namespace ptqwatch::internal
