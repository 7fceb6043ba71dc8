#ifndef PTQWATCH_STAGING_SHARED_OPTIMIZER_H_
#define PTQWATCH_STAGING_SHARED_OPTIMIZER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"
#include "snapshot/optimizer_staging.h"
#include "snapshot/snapshot.h"
#include "snapshot/tensor_table.h"
#include "staging/shared_memory.h"

namespace ptqwatch::internal {

/// Where an optimizer's state lies in the shared memory.
struct OptimizerLayout {
  int64_t offset = 0;  ///< of the rule and the numbers of the parameters; 0: there is no optimizer
  /// One for each entry of the live table, under its name; offset 0: it has no second moment.
  std::vector<SharedTensor> moments = {};
};

/// The optimizer's rule and state as of the snapshot in the slot, in memory that two processes
/// share. The trainer writes it with the snapshot; the worker reads it while the slot has that
/// snapshot. In between, the state of the slot orders both.
class SharedOptimizer {
 public:
  /// Places the optimizer that `read` gives behind `end`, which becomes its end. Errors: those of
  /// OptimizerStaging::Create.
  static absl::StatusOr<OptimizerLayout> Place(const OptimizerStaging::Read& read,
                                               const TensorTable& live, int64_t& end);
  /// Nullopt if there is no optimizer. `memory` must outlive it.
  static std::optional<SharedOptimizer> In(const SharedMemory& memory,
                                           const OptimizerLayout& layout);

  /// Trainer: makes the staging area that copies the moments of all parameters to this memory, and
  /// writes the state as it is now. Errors: those of OptimizerStaging::Create.
  absl::StatusOr<OptimizerStaging> MakeStaging(const OptimizerStaging::Read& read,
                                               const TensorTable& live, DeviceStream& stream);
  /// Trainer: writes the state whose moments that staging area has copied.
  void Write(const OptimizerState& state) noexcept;
  /// Worker. The tensors are those of the shared memory. Nullopt if the trainer has no optimizer.
  std::optional<OptimizerView> Read() const;

 private:
  struct Numbers;
  struct Rule;
  SharedOptimizer(void* memory, std::vector<NamedTensor> moments);
  Numbers* numbers() const;

  Rule* rule_;
  std::vector<NamedTensor> moments_;
  std::map<std::string, size_t, std::less<>> entry_;  // by canonical name
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_SHARED_OPTIMIZER_H_
