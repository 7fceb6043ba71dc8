#include "base/thread.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cfenv>
#include <memory>
#include <system_error>
#include <utility>

#include "base/guard.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/strings.h"
#include "base/thread_priority.h"
#include "base/usable_cores.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kSmallestClosureStackBytes = size_t{8} << 20;
constexpr size_t kLargestStackBytes = size_t{64} << 20;

struct Start {
  std::string name;
  std::function<void()> run;
};

void* Run(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  pthread_setname_np(pthread_self(), start->name.c_str());
  SetThreadPriority(ThreadPriority::kBatch);
  std::fesetenv(FE_DFL_ENV);
  const absl::Status status = Guard([&] {
    const cpu_set_t cpus = UsableCpus();
    sched_setaffinity(0, sizeof(cpus), &cpus);
    start->run();
    return absl::OkStatus();
  });
  (void)Guard([&] {
    if (!status.ok()) {
      Log(Severity::kError, StrCat("the thread ", start->name, " ended: ", Message(status)));
    }
    return absl::OkStatus();
  });
  return nullptr;
}

class Attributes {
 public:
  explicit Attributes(size_t stack_bytes) {
    pthread_attr_init(&attributes_);
    pthread_attr_setstacksize(&attributes_, stack_bytes);
  }
  ~Attributes() { pthread_attr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const pthread_attr_t* get() const { return &attributes_; }

 private:
  pthread_attr_t attributes_;
};

}  // namespace

Thread::Thread(Thread&& other) noexcept
    : thread_(other.thread_), joinable_(std::exchange(other.joinable_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this == &other) return *this;
  Detach();
  thread_ = other.thread_;
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

void Thread::Join() {
  if (std::exchange(joinable_, false)) pthread_join(thread_, nullptr);
}

void Thread::Detach() {
  if (std::exchange(joinable_, false)) pthread_detach(thread_);
}

size_t ClosureStackBytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kLargestStackBytes;
  }
  return std::clamp(static_cast<size_t>(limit.rlim_cur), kSmallestClosureStackBytes,
                    kLargestStackBytes);
}

absl::StatusOr<Thread> StartThread(std::string name, std::function<void()> run,
                                   size_t stack_bytes) {
  constexpr size_t kLongestName = 15;  // Linux limits names to this
  name.resize(std::min(name.size(), kLongestName));
  auto start = std::make_unique<Start>(Start{.name = name, .run = std::move(run)});
  const Attributes attributes(stack_bytes);
  const BlockSignals block;
  pthread_t thread{};
  const int error = pthread_create(&thread, attributes.get(), Run, start.get());
  if (error != 0) {
    return absl::ResourceExhaustedError(
        StrCat("cannot start the thread ", name, ": ", std::generic_category().message(error)));
  }
  pthread_setname_np(thread, name.c_str());  // set when this returns, and when `run` begins
  (void)start.release();                     // owned by the thread
  return Thread(thread);
}

}  // namespace ptqwatch::internal
