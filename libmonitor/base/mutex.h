#ifndef PTQWATCH_BASE_MUTEX_H_
#define PTQWATCH_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

// The standard library's mutexes with Clang's thread-safety annotations: `clang++ -Wthread-safety`
// (tests/gates) checks that members marked ABSL_GUARDED_BY are accessed with their mutex held.
// absl::Mutex does not serve, because ThreadSanitizer cannot see it in a prebuilt abseil.

namespace ptqwatch::internal {

/// std::mutex, annotated.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

/// Holds a mutex for a scope. Unlock and Lock release it for a part of the scope.
template <typename AnyMutex>
class ABSL_SCOPED_LOCKABLE BasicMutexLock {
 public:
  explicit BasicMutexLock(AnyMutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  /// Takes over a mutex that the caller holds.
  BasicMutexLock(AnyMutex& mutex, std::adopt_lock_t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex)
      : mutex_(mutex) {}
  ~BasicMutexLock() ABSL_UNLOCK_FUNCTION() {
    if (held_) mutex_.Unlock();
  }
  BasicMutexLock(const BasicMutexLock&) = delete;
  BasicMutexLock& operator=(const BasicMutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() {
    held_ = false;
    mutex_.Unlock();
  }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  AnyMutex& mutex_;
  bool held_ = true;
};

using MutexLock = BasicMutexLock<Mutex>;

/// std::condition_variable for a Mutex. All waits may wake spuriously, so call them in a loop that
/// checks the condition:
///
///   MutexLock lock(mutex_);
///   while (queue_.empty() && !closed_) changed_.Wait(mutex_);
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  /// False once `deadline` has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = changed_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

/// A mutex with a timed lock. More expensive than Mutex, and not usable with CondVar.
/// (ThreadSanitizer does not understand std::timed_mutex.)
class ABSL_LOCKABLE TimedMutex {
 public:
  TimedMutex() = default;
  TimedMutex(const TimedMutex&) = delete;
  TimedMutex& operator=(const TimedMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    MutexLock lock(mutex_);
    while (held_) released_.Wait(mutex_);
    held_ = true;
  }

  /// True if the mutex was locked. Tries at least once, even after `deadline`.
  bool TryLockUntil(std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    MutexLock lock(mutex_);
    while (held_) {
      if (!released_.WaitUntil(mutex_, deadline) && held_) return false;
    }
    held_ = true;
    return true;
  }

  void Unlock() ABSL_UNLOCK_FUNCTION() {
    MutexLock lock(mutex_);
    held_ = false;
    released_.Signal();
  }

 private:
  Mutex mutex_;
  CondVar released_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
};

using TimedMutexLock = BasicMutexLock<TimedMutex>;

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_MUTEX_H_
