#ifndef PTQWATCH_BASE_THREAD_PRIORITY_H_
#define PTQWATCH_BASE_THREAD_PRIORITY_H_

namespace ptqwatch::internal {

enum class ThreadPriority {
  kBatch,  ///< SCHED_BATCH: its fair share of a core, without preempting others when it wakes
  kLow,    ///< the same, nicer by 12: a sixteenth of a core that one other thread wants
  kIdle,   ///< SCHED_IDLE: only what nobody else wants, which may be nothing
};

/// Of the calling thread. What the system refuses is left as it is: Linux wants CAP_SYS_NICE or
/// RLIMIT_NICE of whoever returns from kLow to kBatch.
void SetThreadPriority(ThreadPriority priority);

/// Whether a thread may return from kIdle to kBatch, for which Linux wants CAP_SYS_NICE or
/// RLIMIT_NICE. Found out once, on a thread of its own.
bool IdlePriorityCanBeLeft();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_THREAD_PRIORITY_H_
