#ifndef PTQWATCH_SNAPSHOT_OWN_DRAWS_H_
#define PTQWATCH_SNAPSHOT_OWN_DRAWS_H_

#include <utility>
#include <vector>

#include "ATen/core/Generator.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/core/impl/LocalDispatchKeySet.h"

namespace ptqwatch::internal {

// LibTorch reserves this mode for its tests and does not use it. Registering kernels for it does
// not affect threads that do not include the key.
inline constexpr c10::DispatchKey kOwnDrawsKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// During its lifetime, ATen's random operators on this thread draw from separate generators if
/// they are called without a generator or with a default one. The default generators, which the
/// training run uses, stay unchanged, whatever other threads do with them.
///
/// Operators that take no generator (fused dropout on a GPU) still draw from the default one;
/// drew() then returns true. Draws from a generator object without an operator, and threads that
/// this thread starts, are not intercepted.
///
/// Instances nest and must be destroyed on the thread that made them. Costs nothing unless random
/// numbers are drawn.
class OwnDraws {
 public:
  OwnDraws();
  virtual ~OwnDraws();
  OwnDraws(const OwnDraws&) = delete;
  OwnDraws& operator=(const OwnDraws&) = delete;

  /// Returns whether this thread has drawn since construction where a default generator was meant.
  bool drew() const { return drew_; }

  /// Returns FailedPrecondition if other code in this process has registered for the dispatch key.
  static absl::Status Available();

 protected:
  /// The generator to draw from on a device, by default with a fixed seed. May be undefined.
  virtual at::Generator On(at::Device device);

 private:
  friend struct RandomOperators;
  c10::impl::IncludeDispatchKeyGuard included_;
  OwnDraws* const outer_;
  bool drew_ = false;
  std::vector<std::pair<at::Device, at::Generator>> own_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_OWN_DRAWS_H_
