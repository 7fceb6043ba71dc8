#include "base/log.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/strings.h"

namespace ptqwatch {
namespace {

struct SinkState {
  internal::Mutex mutex;
  Severity lowest ABSL_GUARDED_BY(mutex) = Severity::kWarning;
  std::shared_ptr<const LogSink> sink ABSL_GUARDED_BY(mutex) =
      std::make_shared<const LogSink>([](Severity severity, std::string_view message) {
        std::string line = internal::StrCat("ptqwatch: ", ToString(severity), ": ", message, "\n");
        std::fwrite(line.data(), 1, line.size(), stderr);
      });
};

SinkState& State() {
  // Leaked: a monitor may be stopped by a static destructor.
  static SinkState* state = new SinkState;
  return *state;
}

}  // namespace

void SetLogSink(Severity lowest, LogSink sink) {
  auto shared = std::make_shared<const LogSink>(std::move(sink));
  SinkState& state = State();
  internal::MutexLock lock(state.mutex);
  state.lowest = lowest;
  state.sink = std::move(shared);
}

namespace internal {

void Log(Severity severity, std::string_view message) noexcept {
  try {
    SinkState& state = State();
    std::shared_ptr<const LogSink> sink;
    {
      MutexLock lock(state.mutex);
      if (severity < state.lowest) return;
      sink = state.sink;
    }
    if (*sink) (*sink)(severity, message);
  } catch (...) {
    // A lost message must not end a training run.
  }
}

void RateLimitedLog::operator()(Severity severity, std::string_view message) noexcept {
  try {
    int64_t suppressed = 0;
    {
      MutexLock lock(mutex_);
      auto now = std::chrono::steady_clock::now();
      if (now < next_) {
        ++suppressed_;
        return;
      }
      next_ = now + period_;
      suppressed = std::exchange(suppressed_, 0);
    }
    if (suppressed == 0) {
      Log(severity, message);
    } else {
      Log(severity, internal::StrCat(message, " (", suppressed, " similar messages suppressed)"));
    }
  } catch (...) {
  }
}

}  // namespace internal
}  // namespace ptqwatch
