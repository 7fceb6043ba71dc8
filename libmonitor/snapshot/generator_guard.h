#ifndef PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_
#define PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_

#include <vector>

#include "ATen/core/Generator.h"
#include "snapshot/own_draws.h"

namespace ptqwatch::internal {

/// Keeps building a model from changing the training run's random numbers. What this thread draws
/// comes from copies of the default generators (CPU, and CUDA where it is initialised), so it is
/// what it would have been without the guard. A default generator that is seeded meanwhile is
/// followed, and put back at the end. What other threads draw meanwhile stays drawn.
///
/// Not told apart from another thread's draws, and so not undone: numbers taken from a default
/// generator's object without an operator of ATen.
class GeneratorGuard : public OwnDraws {
 public:
  GeneratorGuard();
  ~GeneratorGuard() override;

  /// Whether a default generator was seeded, or set to an earlier state, and still is.
  bool Seeded() const;

 protected:
  at::Generator On(at::Device device) override;

 private:
  struct Watched {
    at::Generator generator;
    at::Generator before;  // the newest state seen before it was seeded
    at::Generator seen;    // the newest state seen
    at::Generator own;
  };
  std::vector<Watched> watched_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_GENERATOR_GUARD_H_
