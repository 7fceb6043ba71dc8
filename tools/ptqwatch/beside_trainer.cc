#include "beside_trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/strings.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::milliseconds kLook{250};
constexpr int kNice = 15;
// glibc's default of 8 MiB per thread would count towards the data limit.
constexpr size_t kThreadStackBytes = size_t{1} << 20;

// Yields to the trainer: low CPU priority, first to be killed when memory runs out, limited
// memory.
void StepBack(int64_t max_memory) {
  umask(077);
  setpriority(PRIO_PROCESS, 0, kNice);
  // The trainer's thread may be bound to a CPU, for example by OpenMP. The server may use all CPUs.
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  sched_setaffinity(0, sizeof(all), &all);
  if (const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); file >= 0) {
    constexpr std::string_view kFirst = "1000";
    [[maybe_unused]] const ssize_t written = write(file, kFirst.data(), kFirst.size());
    close(file);
  }
  pthread_attr_t threads;
  pthread_attr_init(&threads);
  pthread_attr_setstacksize(&threads, kThreadStackBytes);
  pthread_setattr_default_np(&threads);
  pthread_attr_destroy(&threads);
  const rlimit limit = {.rlim_cur = static_cast<rlim_t>(max_memory),
                        .rlim_max = static_cast<rlim_t>(max_memory)};
  setrlimit(RLIMIT_DATA, &limit);
  // gRPC stops listening for good if it runs out of descriptors, so raise the limit.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

bool HasEnded(pid_t process) {
  pollfd trainer = {.fd = kTrainerDescriptor, .events = POLLIN, .revents = 0};
  if (poll(&trainer, 1, 0) >= 0 && (trainer.revents & POLLNVAL) == 0) return trainer.revents != 0;
  // The kernel has no pidfds.
  return kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

absl::Status LeaveTrainer(int64_t max_memory) {
  const pid_t server = fork();
  if (server < 0) return absl::ErrnoToStatus(errno, "fork");
  if (server > 0) _exit(0);
  setsid();
  for (const int file : {kHelloDescriptor, kTrainerDescriptor}) fcntl(file, F_SETFD, FD_CLOEXEC);
  StepBack(max_memory);
  return absl::OkStatus();
}

absl::Status SayHello(const ServerHello& hello) {
  const std::string line = HelloToJson(hello) + "\n";
  // Written in one piece, because it is shorter than the buffer of a pipe.
  if (write(kHelloDescriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, "the trainer is not listening");
}

void WaitForEndOfRun(const BesideTrainer& options, const std::string& run_dir,
                     const EndSignals& signals) {
  const std::unique_ptr<RunSource> source = OpenRunDirectory(run_dir);
  constexpr auto kNoEnd = std::chrono::steady_clock::time_point::max();
  auto end = kNoEnd;
  while (!signals.WaitFor(kLook)) {
    const bool ended = HasEnded(options.trainer);
    const absl::StatusOr<RunStatus> run = source->Status();
    const bool ours = !run.ok() || run->process_id.value_or(options.trainer) == options.trainer;
    if (ended && !ours) return;
    const bool over = ended || (run.ok() && ours && run->monitor.health == Health::kStopped);
    const auto now = std::chrono::steady_clock::now();
    if (!over) {
      end = kNoEnd;
    } else if (end == kNoEnd) {
      end = now + std::chrono::seconds(options.linger_seconds);
    } else if (now >= end) {
      return;
    }
  }
}

}  // namespace ptqwatch::internal
