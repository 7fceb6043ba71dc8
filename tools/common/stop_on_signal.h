#ifndef PTQWATCH_TOOLS_COMMON_STOP_ON_SIGNAL_H_
#define PTQWATCH_TOOLS_COMMON_STOP_ON_SIGNAL_H_

#include <atomic>
#include <csignal>
#include <thread>

#include "ptqwatch/execution_context.h"

namespace ptqwatch::tools {

/// Cancels the work on the first SIGINT or SIGTERM; a second one ends the process at once. Blocks
/// both signals in the calling thread, so make it before any other thread.
class StopOnSignal {
 public:
  explicit StopOnSignal(CancelToken cancel);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  bool received() const { return number_ != 0; }
  /// 130 after SIGINT, 143 after SIGTERM. REQUIRES: received().
  int exit_code() const { return 128 + number_; }

 private:
  void Wait(CancelToken cancel);

  sigset_t signals_;
  sigset_t before_;
  std::atomic<int> number_ = 0;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_COMMON_STOP_ON_SIGNAL_H_
