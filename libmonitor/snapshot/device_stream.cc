#include "snapshot/device_stream.h"

#include <cstring>

#include "ATen/core/grad_mode.h"

namespace ptqwatch::internal {

void CpuStream::Copy(const std::vector<at::Tensor>& destinations,
                     const std::vector<at::Tensor>& sources) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < sources.size(); ++i) {
    const at::Tensor& to = destinations[i];
    const at::Tensor& from = sources[i];
    if (to.is_contiguous() && from.is_contiguous()) {
      if (from.nbytes() > 0)
        std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    } else {
      to.copy_(from);
    }
  }
}

}  // namespace ptqwatch::internal
