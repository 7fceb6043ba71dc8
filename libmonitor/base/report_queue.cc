#include "base/report_queue.h"

#include <pthread.h>

#include <system_error>

#include "absl/status/status.h"
#include "base/signals.h"
#include "base/strings.h"

namespace ptqwatch::internal {

absl::StatusOr<std::thread> StartThread(std::string name, std::function<void()> run) {
  try {
    BlockSignals block;
    return std::thread([name, run = std::move(run)] {
      pthread_setname_np(pthread_self(), name.c_str());
      run();
    });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        StrCat("cannot start the thread ", name, ": ", error.what()));
  }
}

}  // namespace ptqwatch::internal
