#include "handover/worker_link.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Ordinary steps are passed on this much later; snapshots wake the worker.
constexpr milliseconds kLook{100};
// How long the trainer may take to copy the weights, or to get to waiting in finish().
constexpr std::chrono::seconds kLongestCopy{60};

// The model of `model`, with live tensors in memory that the trainer's process fills.
class RemoteSubject final : public Subject {
 public:
  RemoteSubject(std::unique_ptr<Subject> model, std::vector<NamedTensor> live,
                const SharedOptimizer* optimizer, const RemoteTrainer* remote)
      : model_(std::move(model)), live_(std::move(live)), optimizer_(optimizer), remote_(remote) {}

  std::vector<NamedTensor> LiveTensors() const override { return live_; }
  std::optional<OptimizerView> Optimizer() const override {
    return optimizer_ == nullptr ? model_->Optimizer() : optimizer_->Read();
  }
  absl::Status BuildReplica() override { return model_->BuildReplica(); }
  std::vector<NamedTensor> ReplicaTensors() const override { return model_->ReplicaTensors(); }
  LossValues ReplicaLosses(const Batch& batch) override { return model_->ReplicaLosses(batch); }
  std::string ReplicaInTraining() const override { return model_->ReplicaInTraining(); }
  bool CanTrainReplica() const override { return model_->CanTrainReplica(); }
  void TrainReplica(const CooldownStep& step) override { model_->TrainReplica(step); }
  const std::vector<Batch>& probe() const override { return model_->probe(); }
  const std::vector<Batch>& calibration() const override { return model_->calibration(); }
  const std::vector<Batch>& curvature() const override { return model_->curvature(); }
  const RemoteTrainer* remote_trainer() const override { return remote_; }

 private:
  const std::unique_ptr<Subject> model_;
  const std::vector<NamedTensor> live_;
  const SharedOptimizer* const optimizer_;  // null: no more than its name is known
  const RemoteTrainer* const remote_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerLink>> WorkerLink::Open(const Options& options) {
  PTQWATCH_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(options.memory, options.bytes));
  return std::unique_ptr<WorkerLink>(new WorkerLink(options, std::move(memory)));
}

WorkerLink::WorkerLink(const Options& options, SharedMemory memory)
    : options_(options),
      memory_(std::move(memory)),
      page_(memory_.page()),
      optimizer_(SharedOptimizer::In(memory_, options.optimizer)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  remote_ = {.process = options.process,
             .switches = &page_.switches,
             .slot = &page_.slot,
             .take_last = [this] { return TakeLast(); },
             .connect = [this](RemoteTrainer::Monitor made) { Connect(std::move(made)); }};
}

WorkerLink::~WorkerLink() {
  for (const int file : {options_.wake, options_.trainer, stop_}) {
    if (file >= 0) close(file);
  }
}

std::unique_ptr<Subject> WorkerLink::Subjected(std::unique_ptr<Subject> model) {
  return std::make_unique<RemoteSubject>(std::move(model), memory_.Tensors(options_.layout),
                                         optimizer_ ? &*optimizer_ : nullptr, &remote_);
}

void WorkerLink::Connect(RemoteTrainer::Monitor monitor) {
  if (!page_.lr_known.load(std::memory_order_relaxed)) {
    page_.lr = monitor.lr;
    page_.lr_known.store(true, std::memory_order_release);
  }
  if (!options_.replaces.empty()) {
    monitor.announce(Event::Kind::kWorkerFailed, Severity::kError, options_.replaces);
  }
  TakeOver(monitor);
  page_.switches.idle = false;
  MutexLock lock(mutex_);
  monitor_ = std::make_shared<const RemoteTrainer::Monitor>(std::move(monitor));
}

bool WorkerLink::TakenIsUnread() const {
  const uint64_t written = page_.written.load(std::memory_order_acquire);
  for (uint64_t i = page_.read.load(std::memory_order_relaxed); i < written; ++i) {
    const StepRecord& record = page_.records[i % SharedPage::kRecords];
    if (record.outcome.result == SnapshotResult::kTaken) return true;
  }
  return false;
}

void WorkerLink::TakeOver(const RemoteTrainer::Monitor& monitor) {
  SharedSlotState& slot = page_.slot;
  const int64_t newest = slot.taken.load(std::memory_order_acquire);
  const int64_t begun = slot.begun.load();
  const bool unfinished = begun != slot.done.load();
  // A snapshot that ends every worker is not tried a third time.
  const bool again = unfinished && begun == newest && page_.again.exchange(begun) != begun;
  if (unfinished && !again) {
    page_.lost.fetch_add(1, std::memory_order_relaxed);
    slot.done = begun;
  }
  SlotState state = slot.slot.load();
  // The trainer fills it, or has, and its step says so.
  if (state == SlotState::kPending || (state == SlotState::kSent && TakenIsUnread())) return;
  if (page_.sent_number.load() != newest) return;
  const bool waits = state != SlotState::kFree && begun != newest;
  if (!again && !waits) {
    if (state != SlotState::kFree) slot.slot = SlotState::kFree;
    return;
  }
  // Fails if the trainer fills it now.
  if (!slot.slot.compare_exchange_strong(state, SlotState::kSent)) return;
  if (page_.sent.outcome.result) return monitor.replay(page_.sent.info, page_.sent.outcome);
  slot.slot = SlotState::kFree;  // finish() asks for it again
}

void WorkerLink::PassOnServer(const RemoteTrainer::Monitor& monitor) {
  const std::optional<SharedServer::News> news = page_.server.Read(server_seen_);
  if (!news) return;
  monitor.set_server(news->status, news->process);
  if (news->message.empty()) return;
  monitor.announce(Event::Kind::kServerFailed, news->failed ? Severity::kError : Severity::kInfo,
                   news->message);
}

bool WorkerLink::PassOn(const RemoteTrainer::Monitor* monitor) {
  const uint64_t read = page_.read.load(std::memory_order_relaxed);
  if (read == page_.written.load(std::memory_order_acquire)) return false;
  const StepRecord record = page_.records[read % SharedPage::kRecords];
  if (monitor != nullptr) monitor->replay(record.info, record.outcome);
  page_.read.store(read + 1, std::memory_order_release);
  return true;
}

bool WorkerLink::TrainerEnded() const {
  pollfd trainer = {.fd = options_.trainer, .events = POLLIN, .revents = 0};
  if (options_.trainer >= 0) return poll(&trainer, 1, 0) > 0;
  return kill(options_.process, 0) != 0 && errno == ESRCH;
}

void WorkerLink::Wait(milliseconds longest) const {
  pollfd waits[] = {{.fd = options_.wake, .events = POLLIN, .revents = 0},
                    {.fd = options_.trainer, .events = POLLIN, .revents = 0},
                    {.fd = stop_, .events = POLLIN, .revents = 0}};
  if (poll(waits, 3, static_cast<int>(longest.count())) <= 0) return;
  uint64_t count = 0;
  if ((waits[0].revents & POLLIN) != 0) {
    [[maybe_unused]] const ssize_t got = read(options_.wake, &count, sizeof(count));
  }
}

WorkerLink::End WorkerLink::Run() {
  while (!stopped_.load(std::memory_order_relaxed)) {
    Wait(kLook);
    if (TrainerEnded()) return End::kTrainerGone;
    std::shared_ptr<const RemoteTrainer::Monitor> monitor;
    {
      MutexLock lock(mutex_);
      monitor = monitor_;
    }
    if (monitor == nullptr && !drop_) continue;
    while (PassOn(monitor.get()) && !stopped_.load(std::memory_order_relaxed)) {
    }
    if (monitor != nullptr) PassOnServer(*monitor);
    if (monitor != nullptr && options_.longest_silence.count() > 0 &&
        monitor->silence() > InSeconds(options_.longest_silence)) {
      return End::kSilent;
    }
  }
  return End::kStopped;
}

void WorkerLink::Stop() {
  stopped_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof(one));
}

void WorkerLink::WaitUntilRead(milliseconds timeout) const {
  const auto until = steady_clock::now() + timeout;
  const uint64_t written = page_.written.load(std::memory_order_acquire);
  while (page_.read.load(std::memory_order_acquire) < written && steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

FillOutcome WorkerLink::TakeLast() {
  const int64_t number = page_.asked.fetch_add(1, std::memory_order_acq_rel) + 1;
  const auto until = steady_clock::now() + kLongestCopy;
  while (page_.answered.load(std::memory_order_acquire) != number) {
    if (steady_clock::now() >= until || stopped_ || TrainerEnded()) {
      return FillOutcome::NotTaken(SnapshotResult::kFailed, 0,
                                   "the trainer did not copy its weights");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  FillOutcome outcome;
  outcome.result = page_.result.load(std::memory_order_relaxed);
  outcome.stall_seconds = page_.stall_seconds.load(std::memory_order_relaxed);
  return outcome;
}

}  // namespace ptqwatch::internal
