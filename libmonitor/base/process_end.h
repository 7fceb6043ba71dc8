#ifndef PTQWATCH_BASE_PROCESS_END_H_
#define PTQWATCH_BASE_PROCESS_END_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// The process in which it was made. A child of fork() has none of our threads, and locks that it
/// inherits may be held for ever.
class PTQWATCH_EXPORT ProcessMark {
 public:
  ProcessMark();
  /// False in a child of that process. One load: no system call.
  bool here() const noexcept { return generation_ == generation().load(std::memory_order_relaxed); }

 private:
  static std::atomic<int64_t>& generation() noexcept;
  int64_t generation_;
};

/// Calls `end` once when the process ends by exit() or by returning from main, unless it is
/// destroyed before: earlier than the static objects that existed when the last of these was made,
/// or at the last Renew, are destroyed, on the thread that called exit(). Not in a child of fork().
/// The destructor waits for a call under way.
class AtProcessEnd {
 public:
  explicit AtProcessEnd(std::function<void()> end);
  ~AtProcessEnd();
  AtProcessEnd(const AtProcessEnd&) = delete;
  AtProcessEnd& operator=(const AtProcessEnd&) = delete;
  /// Static objects that were made since then outlive the calls, too. Takes 32 bytes for ever. Any
  /// thread.
  static void Renew() noexcept;

 private:
  const ProcessMark process_;
  const std::function<void()> end_;
};

/// True once every AtProcessEnd was called: what a thread still uses is about to be destroyed.
bool ProcessEnds() noexcept;

/// Where ProcessEnds, never returns. For threads that Stop had to leave behind.
void StayIfProcessEnds() noexcept;

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_PROCESS_END_H_
