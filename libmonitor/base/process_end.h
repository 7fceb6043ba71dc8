#ifndef PTQWATCH_BASE_PROCESS_END_H_
#define PTQWATCH_BASE_PROCESS_END_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// Remembers the process that created it. A child of fork() has none of our threads, and locks that
/// it inherits may stay locked forever.
class PTQWATCH_EXPORT ProcessMark {
 public:
  ProcessMark();
  /// False in a child of that process. Costs one load, no system call.
  bool here() const noexcept { return generation_ == generation().load(std::memory_order_relaxed); }

 private:
  static std::atomic<int64_t>& generation() noexcept;
  int64_t generation_;
};

/// Calls `end` once when the process ends by exit() or by returning from main, unless this object
/// is destroyed earlier. The call comes on the thread that called exit(), before the destruction of
/// static objects that existed when the newest AtProcessEnd was made or at the last Renew. No call
/// in a child of fork(). The destructor waits for a call in progress.
class AtProcessEnd {
 public:
  explicit AtProcessEnd(std::function<void()> end);
  ~AtProcessEnd();
  AtProcessEnd(const AtProcessEnd&) = delete;
  AtProcessEnd& operator=(const AtProcessEnd&) = delete;
  /// Static objects made before this call also outlive the calls of `end`. Takes 32 bytes
  /// permanently. Any thread.
  static void Renew() noexcept;

 private:
  const ProcessMark process_;
  const std::function<void()> end_;
};

/// True once every AtProcessEnd was called: objects that a thread still uses will be destroyed
/// soon.
bool ProcessEnds() noexcept;

/// Never returns if ProcessEnds(). For threads that Stop had to leave behind.
void StayIfProcessEnds() noexcept;

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_PROCESS_END_H_
