#ifndef PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_
#define PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_

#include <utility>
#include <vector>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"

namespace ptqwatch::internal {

/// Saves the state of every default random generator in use (CPU, and CUDA where it is initialised)
/// and restores it at the end of its scope. Building a model draws its initial weights from them,
/// and a single extra draw would change the training run.
class GeneratorGuard {
 public:
  GeneratorGuard();
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

  /// Whether any generator was drawn from since construction.
  bool Moved() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> saved_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_
