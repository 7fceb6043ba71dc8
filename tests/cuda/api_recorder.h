#ifndef PTQWATCH_TESTS_CUDA_API_RECORDER_H_
#define PTQWATCH_TESTS_CUDA_API_RECORDER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "support/api_calls.h"

namespace ptqwatch::testing {

/// Records the calls of CUDA's runtime and driver on all threads that have an ApiEffect. At most
/// one at a time.
class ApiRecorder {
 public:
  /// Returns Unavailable if CUPTI refuses, for example because another profiler is attached.
  static absl::StatusOr<std::unique_ptr<ApiRecorder>> Start();
  virtual ~ApiRecorder() = default;

  virtual void Mark(ApiEffect effect) = 0;
  virtual std::vector<ApiCall> Calls() const = 0;
};

/// The calling thread's name, as in ApiCall.
std::string ThreadName();

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_CUDA_API_RECORDER_H_
