#ifndef PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_
#define PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_

#include <vector>

#include "ATen/core/Generator.h"
#include "snapshot/own_draws.h"

namespace ptqwatch::internal {

/// Keeps the building of a model from changing the training run's random numbers. Draws of this
/// thread come from copies of the default generators (CPU, and CUDA if initialised), so their
/// values are the same as without the guard. If a default generator is seeded meanwhile, its copy
/// follows, and the destructor restores the generator. Draws of other threads are kept.
///
/// Limitation: numbers drawn directly from a default generator's object, without an ATen operator,
/// look like another thread's draws and are not undone.
class GeneratorGuard : public OwnDraws {
 public:
  GeneratorGuard();
  ~GeneratorGuard() override;

  /// Returns whether a default generator was seeded or set back and has not been restored.
  bool Seeded() const;

 protected:
  at::Generator On(at::Device device) override;

 private:
  struct Watched {
    at::Generator generator;
    at::Generator before;  // the newest state before a seed was seen
    at::Generator seen;    // the newest state seen
    at::Generator own;
  };
  std::vector<Watched> watched_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_
