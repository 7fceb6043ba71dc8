#include "leg_processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>

#include "leg_graph.h"
#include "leg_queue.h"
#include "progress.h"

namespace ptqwatch::examples {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause(20);

/// Only what may be called between fork and exec of a process with threads.
[[noreturn]] void BecomeLeg(char* const* arguments, int log, pid_t parent) {
  // Ctrl-C is for the study, which ends its legs.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

pid_t Start(const Leg& leg, const StudyDir& dir, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--leg", leg.id});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const std::string log_path = dir.log(leg.id).string();
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) throw std::runtime_error(log_path + ": " + std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) BecomeLeg(pointers.data(), log, parent);
  close(log);
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  return child;
}

std::string HowItEnded(int status) {
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit code " + std::to_string(WEXITSTATUS(status));
}

class Pool {
 public:
  Pool(const std::vector<Leg>& legs, const StudySettings& settings, const StudyDir& dir)
      : settings_(settings),
        dir_(dir),
        queue_(legs, [&dir](const Leg& leg) { return dir.IsFinished(leg.id); }),
        progress_(Work(legs, false), Work(legs, true)) {}
  ~Pool() {
    for (const auto& [child, leg] : running_) kill(child, SIGTERM);
    for (const auto& [child, leg] : running_) waitpid(child, nullptr, 0);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void Run(int jobs, const std::vector<std::string>& arguments, const StopSignal& stop) {
    while (!stop.requested()) {
      while (std::ssize(running_) < jobs) {
        const Leg* leg = queue_.Take();
        if (leg == nullptr) break;
        running_[Start(*leg, dir_, arguments)] = leg;
      }
      if (running_.empty()) return;
      stop.Sleep(kPause);
      Reap();
    }
  }

  LegsMade result() const {
    return {queue_.finished(), queue_.failed(),
            queue_.size() - queue_.finished() - queue_.failed()};
  }

 private:
  double Work(const std::vector<Leg>& legs, bool finished_only) const {
    double sum = 0;
    for (const Leg& leg : legs) {
      if (!finished_only || dir_.IsFinished(leg.id)) sum += WorkOf(leg, settings_);
    }
    return sum;
  }

  void Reap() {
    for (auto child = running_.begin(); child != running_.end();) {
      int status = 0;
      if (waitpid(child->first, &status, WNOHANG) == 0) {
        ++child;
        continue;
      }
      Ended(*child->second, status);
      child = running_.erase(child);
    }
  }

  void Ended(const Leg& leg, int status) {
    if (status != 0 || !dir_.IsFinished(leg.id)) {
      queue_.Failed(leg);
      std::fprintf(stderr, "leg %s failed (%s): %s\n", leg.id.c_str(), HowItEnded(status).c_str(),
                   dir_.log(leg.id).c_str());
      return;
    }
    queue_.Finished(leg);
    progress_.Add(WorkOf(leg, settings_));
    const std::chrono::duration<double> passed = Clock::now() - start_;
    std::fprintf(stderr, "%zu of %zu legs, %s  (%s took %.1f s)\n", queue_.finished(),
                 queue_.size(), progress_.Text(passed.count()).c_str(), leg.id.c_str(),
                 dir_.SecondsOf(leg.id));
  }

  const StudySettings& settings_;
  const StudyDir& dir_;
  LegQueue queue_;
  Progress progress_;
  const Clock::time_point start_ = Clock::now();
  std::map<pid_t, const Leg*> running_;
};

}  // namespace

LegsMade RunLegs(const std::vector<Leg>& legs, const StudySettings& settings, const StudyDir& dir,
                 int jobs, const std::vector<std::string>& arguments, const StopSignal& stop) {
  Pool pool(legs, settings, dir);
  pool.Run(jobs, arguments, stop);
  return pool.result();
}

}  // namespace ptqwatch::examples
