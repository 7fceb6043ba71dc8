#include "cuda/arena.h"

#include <algorithm>

#include "base/strings.h"

namespace ptqwatch::internal {

absl::StatusOr<void*> Arena::Take(int64_t bytes, std::string_view what) {
  if (bytes < 0) return absl::InvalidArgumentError(StrCat(what, " would take ", bytes, " bytes"));
  // Checks before padding, which could overflow.
  if (bytes > remaining() || Padded(bytes) > remaining()) {
    return absl::ResourceExhaustedError(StrCat(what, " takes ", bytes, " bytes; of ", size_,
                                               " bytes of device memory ", remaining(),
                                               " are left"));
  }
  void* piece = reinterpret_cast<void*>(memory_ + static_cast<uintptr_t>(used_));
  used_ += Padded(bytes);
  peak_ = std::max(peak_, used_);
  return piece;
}

}  // namespace ptqwatch::internal
