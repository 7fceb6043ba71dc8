#include "streamed/weight_copies.h"

#include <cstdint>

#include "ATen/ops/empty.h"

namespace ptqwatch::internal {

at::Tensor WeightCopies::Empty(size_t index) {
  const at::Tensor& weight = weights_[index];
  at::Tensor& memory = memory_[weight.storage().unsafeGetStorageImpl()];
  if (!memory.defined()) {
    memory = at::empty({static_cast<int64_t>(weight.storage().nbytes() / sizeof(float))},
                       weight.options());
  }
  return memory.as_strided(weight.sizes(), weight.strides(), weight.storage_offset());
}

}  // namespace ptqwatch::internal
