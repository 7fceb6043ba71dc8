#ifndef PTQWATCH_BASE_THREAD_PRIORITY_H_
#define PTQWATCH_BASE_THREAD_PRIORITY_H_

namespace ptqwatch::internal {

enum class ThreadPriority {
  kBatch,  ///< SCHED_BATCH: a fair share of a core, without preempting others when it wakes
  kLow,    ///< the same with nice + 12: a sixteenth of a core that one other thread wants
  kIdle,   ///< SCHED_IDLE: only CPU time that no other thread wants, which may be none
};

/// Sets the priority of the calling thread as far as the system allows: to return from kLow to
/// kBatch, Linux requires CAP_SYS_NICE or RLIMIT_NICE.
void SetThreadPriority(ThreadPriority priority);

/// Whether a thread may return from kIdle to kBatch, for which Linux requires CAP_SYS_NICE or
/// RLIMIT_NICE. Determined once, on a separate thread.
bool IdlePriorityCanBeLeft();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_THREAD_PRIORITY_H_
