#ifndef PTQWATCH_STAGING_WHOLE_TENSORS_H_
#define PTQWATCH_STAGING_WHOLE_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"
#include "staging/shared_memory.h"

namespace ptqwatch::internal {

/// Tensors that are put together from the parts that ranks have. Not thread-safe.
class WholeTensors {
 public:
  /// The parts of one rank.
  struct Rank {
    int64_t rank = 0;
    const SharedMemory* memory = nullptr;  ///< must outlive the tensors
    const std::vector<SharedTensor>* layout = nullptr;
  };

  /// Checks that the parts cover each tensor once, apart from equal parts, of which the first is
  /// used, and makes the tensors. Tensors are listed in the order in which `ranks` list them first.
  /// FailedPrecondition, naming tensor and rank, if parts do not fit into the whole, overlap, or
  /// have other dtypes or ties; NotFound, naming the tensor, if they do not cover it.
  static absl::StatusOr<WholeTensors> Make(const std::vector<Rank>& ranks);

  /// Tied tensors are one. The memory of all stays the same.
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  /// Ranks whose parts are used, and the bytes of these.
  const std::map<int64_t, int64_t>& bytes() const { return bytes_; }
  /// Copies the parts.
  void Assemble() const;

 private:
  std::vector<NamedTensor> tensors_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // to, from
  std::map<int64_t, int64_t> bytes_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_WHOLE_TENSORS_H_
