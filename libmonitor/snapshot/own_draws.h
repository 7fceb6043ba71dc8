#ifndef PTQWATCH_SNAPSHOT_OWN_DRAWS_H_
#define PTQWATCH_SNAPSHOT_OWN_DRAWS_H_

#include <utility>
#include <vector>

#include "ATen/core/Generator.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/core/impl/LocalDispatchKeySet.h"

namespace ptqwatch::internal {

/// While it lives, ATen's random operators that this thread calls without a generator, or with a
/// default one, draw from generators of its own. The default generators, which the training run
/// draws from, stay as they are, whatever other threads do with them meanwhile.
///
/// Operators that take no generator (fused dropout on a GPU) draw from the default one all the
/// same; drew() tells. Not seen at all: what uses a generator object without an operator, and the
/// threads that this one starts.
///
/// Nests; to be destroyed on the thread that made it. Costs nothing where nothing is drawn.
class OwnDraws {
 public:
  OwnDraws();
  virtual ~OwnDraws();
  OwnDraws(const OwnDraws&) = delete;
  OwnDraws& operator=(const OwnDraws&) = delete;

  /// Whether this thread drew since construction where the default generator was meant.
  bool drew() const { return drew_; }

  /// FailedPrecondition if something else in this process has taken the dispatch key.
  static absl::Status Available();

 protected:
  /// The generator to draw from on a device: one with a fixed seed. Undefined where none can be
  /// made.
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
