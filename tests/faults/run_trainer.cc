// A trainer with a run directory, for tests that end it, take its disk away or flood its servers.
//
//   run_trainer [--run-dir DIR] [--monitor on|off] [--steps N] [--every N] [--reports N] [--size N]
//               [--serve on] [--server-linger SECONDS] [--checkpoints DIR] [--checkpoint-mb N]
//               [--checkpoint-steps N] [--linger on] [--forks N] [--reaps on]
//               [--stop-at-report N]
//
// Trains for at least --steps, and until there are --reports; with --linger until SIGTERM. Every
// --checkpoint-steps it writes a checkpoint beside the old one and renames it. After the first 100
// steps it forks --forks times; the children end by exit() and by returning from main, in turn.
// With --reaps a thread waits for any child, as process managers do. After --stop-at-report its
// process stands still until SIGCONT.
// Prints, one a line: `metrics URL`, `grpc ADDRESS`, `started`, `report SEQUENCE` for each,
// `child CODE` (-1: it had to be killed), `weights HASH` as of --steps, `server STATE restarts N`,
// `checkpoints N failed N`.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/randn_like.h"
#include "ATen/ops/square.h"
#include "ATen/ops/tanh.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/serve_options.h"

namespace ptqwatch {
namespace {

using std::chrono::seconds;

std::atomic<bool> terminated{false};

class Flags {
 public:
  Flags(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) values_[argv[i]] = argv[i + 1];
  }
  std::string Text(const std::string& name, const std::string& usual = "") const {
    const auto found = values_.find(name);
    return found == values_.end() ? usual : found->second;
  }
  int64_t Number(const std::string& name, int64_t usual) const {
    return std::stoll(Text(name, std::to_string(usual)));
  }
  bool On(const std::string& name, const std::string& usual = "off") const {
    return Text(name, usual) == "on";
  }

 private:
  std::map<std::string, std::string> values_;
};

class Printer final : public Exporter {
 public:
  explicit Printer(std::shared_ptr<std::atomic<int64_t>> count) : count_(std::move(count)) {}
  std::string_view name() const override { return "printer"; }
  absl::Status Start(StatusSource*, Control*) override { return absl::OkStatus(); }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    std::printf("report %ld\n", static_cast<long>(report->report.sequence));
    ++*count_;
  }
  void Stop(std::chrono::milliseconds) override {}

 private:
  const std::shared_ptr<std::atomic<int64_t>> count_;
};

struct Weights {
  explicit Weights(int64_t size) : w(at::randn({size, size})), v(at::randn({size, 8})) {}
  at::Tensor w;
  at::Tensor v;

  void Step() {
    w.mul_(0.999).add_(at::randn_like(w), 1e-3);
    v.mul_(0.999).add_(at::randn_like(v), 1e-3);
  }
  std::string Hash() const {
    uint64_t hash = 1469598103934665603u;
    for (const at::Tensor& tensor : {w, v}) {
      const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
      for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return std::to_string(hash);
  }
};

int64_t Taken(const Monitor& monitor) {
  return monitor.status().snapshots[static_cast<size_t>(SnapshotResult::kTaken)];
}

std::unique_ptr<Monitor> Watch(const Weights& weights, const Flags& flags,
                               std::shared_ptr<std::atomic<int64_t>> reports) {
  FunctionSubjectOptions subject;
  subject.live = {{"w", weights.w}, {"v", weights.v}};
  subject.losses = [](const TensorMap& t, const Batch& batch) -> LossValues {
    return at::matmul(at::tanh(at::matmul(batch[0], t.at("w"))), t.at("v")).square().sum(1);
  };
  subject.probe = {{at::randn({32, weights.w.size(0)})}};
  MonitorOptions options;
  options.schedule.every = flags.Number("--every", 1);
  options.duty_cycle = 1;
  options.adapt_plan = false;
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8}};
  options.run_dir = flags.Text("--run-dir");
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<Printer>(std::move(reports)));
  if (flags.On("--serve")) {
    options.serve = {.http = "127.0.0.1:0",
                     .grpc = "127.0.0.1:0",
                     .linger = seconds(flags.Number("--server-linger", 0))};
  }
  auto monitor =
      *Monitor::Create(MakeFunctionSubject(std::move(subject)), options, std::move(exporters));
  ServerStatus served = monitor->served();
  while (served.state == ServerState::kStarting) {  // on a busy machine
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    served = monitor->served();
  }
  if (!served.metrics.empty()) std::printf("metrics %s\n", served.metrics.c_str());
  if (!served.grpc.empty()) std::printf("grpc %s\n", served.grpc.c_str());
  return monitor;
}

// Exit code of a child; -1 if it does not end by itself.
int ExitCodeOf(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void ReapForEver() {
  while (true) {
    if (waitpid(-1, nullptr, 0) < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool WriteAll(int file, const std::vector<char>& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = write(file, bytes.data() + done, bytes.size() - done);
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return fsync(file) == 0;
}

bool WriteCheckpoint(const std::string& folder, int64_t megabytes) {
  const std::string path = folder + "/checkpoint";
  const std::string beside = path + ".new";
  const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0) return false;
  const bool written = WriteAll(file, std::vector<char>(static_cast<size_t>(megabytes) << 20));
  close(file);
  if (written && rename(beside.c_str(), path.c_str()) == 0) return true;
  unlink(beside.c_str());
  return false;
}

int Run(const Flags& flags) {
  at::manual_seed(1);
  if (flags.On("--reaps")) std::thread(ReapForEver).detach();
  Weights weights(flags.Number("--size", 48));
  const auto reports = std::make_shared<std::atomic<int64_t>>(0);
  std::unique_ptr<Monitor> monitor;
  if (flags.On("--monitor", "on")) monitor = Watch(weights, flags, reports);
  std::puts("started");
  at::manual_seed(2);
  const int64_t steps = flags.Number("--steps", 1000);
  const int64_t wanted = monitor ? flags.Number("--reports", 0) : 0;
  int64_t stop_at = flags.Number("--stop-at-report", 0);
  const bool linger = flags.On("--linger");
  const std::string checkpoints = flags.Text("--checkpoints");
  const int64_t checkpoint_steps = flags.Number("--checkpoint-steps", 100);
  int64_t written = 0;
  int64_t failed = 0;
  for (int64_t step = 1; (step <= steps || *reports < wanted || linger) && !terminated; ++step) {
    weights.Step();
    if (monitor) monitor->OnStep({.step = step, .learning_rate = 0.1});
    if (stop_at > 0 && *reports >= stop_at) {
      stop_at = 0;
      raise(SIGSTOP);
    }
    for (int64_t i = 0; step == 100 && i < flags.Number("--forks", 0); ++i) {
      // A fork while another thread registers a destructor keeps the child inside exit().
      while (monitor && Taken(*monitor) > *reports) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const pid_t child = fork();
      if (child == 0) {
        if (i % 2 == 0) std::exit(0);
        return 0;  // destroys the monitor
      }
      std::printf("child %d\n", ExitCodeOf(child));
    }
    // Leaves clients and the monitor some time on a small machine.
    if (linger) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!checkpoints.empty() && step % checkpoint_steps == 0) {
      ++(WriteCheckpoint(checkpoints, flags.Number("--checkpoint-mb", 1)) ? written : failed);
    }
    // The weights to compare with a run without a monitor.
    if (step == steps) std::printf("weights %s\n", weights.Hash().c_str());
  }
  if (monitor && !terminated) monitor->Finish(seconds(10)).IgnoreError();
  if (monitor) {
    const ServerStatus served = monitor->served();
    std::printf("server %s restarts %ld\n", std::string(ToString(served.state)).c_str(),
                static_cast<long>(served.restarts));
    monitor->Stop(seconds(3)).IgnoreError();
  }
  std::printf("checkpoints %ld failed %ld\n", static_cast<long>(written),
              static_cast<long>(failed));
  return terminated ? 143 : 0;
}

}  // namespace
}  // namespace ptqwatch

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  struct sigaction on_term {};
  on_term.sa_handler = [](int) { ptqwatch::terminated = true; };
  sigaction(SIGTERM, &on_term, nullptr);
  return ptqwatch::Run(ptqwatch::Flags(argc, argv));
}
