#include "staging/worker_link.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often the server's news and the measurement's signs of life are looked for.
constexpr milliseconds kLook{100};
// The same while a snapshot of several ranks is not complete.
constexpr milliseconds kLookForShards{5};
// How long the ranks may take to get to making their monitors.
constexpr std::chrono::seconds kLongestStart{100};
// How long the trainer may take to copy the weights, or to get to waiting in finish().
constexpr std::chrono::seconds kLongestCopy{60};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerLink>> WorkerLink::Open(const Options& options) {
  PTQWATCH_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(options.memory));
  PTQWATCH_ASSIGN_OR_RETURN(Manifest manifest, ManifestFromJson(memory.manifest()));
  return std::unique_ptr<WorkerLink>(
      new WorkerLink(options, std::move(memory), std::move(manifest)));
}

WorkerLink::WorkerLink(const Options& options, SharedMemory memory, Manifest manifest)
    : options_(options),
      memory_(std::make_shared<SharedMemory>(std::move(memory))),
      page_(memory_->page()),
      manifest_(std::move(manifest)),
      optimizer_(SharedOptimizer::In(*memory_, manifest_.optimizer)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WorkerLink::~WorkerLink() {
  for (const int file : {options_.wake, options_.trainer, stop_}) {
    if (file >= 0) close(file);
  }
}

absl::Status WorkerLink::Gather() {
  if (!manifest_.shard) return absl::OkStatus();
  PTQWATCH_ASSIGN_OR_RETURN(shards_, Shards::Open(memory_, manifest_, trainer(),
                                                  steady_clock::now() + kLongestStart, stopped_));
  gathered_ = true;
  if (shards_->relay() == nullptr) return absl::OkStatus();
  return shards_->relay()->Start(steady_clock::now() + kLongestStart, stopped_);
}

void WorkerLink::Connect(Measurer measurer) {
  if (!options_.replaces.empty()) {
    measurer.announce(Event::Kind::kWorkerFailed, Severity::kError, options_.replaces);
  }
  measurer.wake();  // a snapshot of an earlier worker may wait
  page_.switches.nothing_to_measure = false;
  if (shards_ != nullptr) shards_->PassOn();
  MutexLock lock(mutex_);
  measurer_ = std::make_shared<const Measurer>(std::move(measurer));
}

void WorkerLink::PassOnServer(const Measurer& measurer) {
  const std::optional<SharedServer::News> news = page_.server.Read(server_seen_);
  if (!news) return;
  measurer.set_server(news->status, news->process);
  if (news->message.empty() || page_.server_announced.exchange(server_seen_) == server_seen_) {
    return;
  }
  measurer.announce(Event::Kind::kServerFailed, news->failed ? Severity::kError : Severity::kInfo,
                    news->message);
}

milliseconds WorkerLink::WatchShards(const Measurer& measurer) {
  if (shards_ == nullptr) return kLook;
  shards_->PassOn();
  if (const std::optional<std::string> why = shards_->Drop()) {
    ++incomplete_;
    // Announced less and less often.
    if ((incomplete_ & (incomplete_ - 1)) == 0) {
      measurer.announce(Event::Kind::kSnapshotSkipped, Severity::kWarning,
                        StrCat(*why, " (incomplete so far: ", incomplete_, ")"));
    }
  }
  if (shards_->complete()) {
    measurer.wake();
    return kLook;
  }
  return page_.slot.filled() ? kLookForShards : kLook;
}

bool WorkerLink::TrainerEnded() const {
  pollfd trainer = {.fd = options_.trainer, .events = POLLIN, .revents = 0};
  if (options_.trainer >= 0) return poll(&trainer, 1, 0) > 0;
  return kill(options_.process, 0) != 0 && errno == ESRCH;
}

bool WorkerLink::Wait(milliseconds longest) const {
  pollfd waits[] = {{.fd = options_.wake, .events = POLLIN, .revents = 0},
                    {.fd = options_.trainer, .events = POLLIN, .revents = 0},
                    {.fd = stop_, .events = POLLIN, .revents = 0}};
  if (poll(waits, 3, static_cast<int>(longest.count())) <= 0) return false;
  uint64_t count = 0;
  return (waits[0].revents & POLLIN) != 0 && read(options_.wake, &count, sizeof(count)) > 0;
}

WorkerLink::End WorkerLink::Run() {
  bool woken = false;
  milliseconds look = kLook;
  while (!stopped_.load(std::memory_order_relaxed)) {
    woken = Wait(look) || woken;
    if (TrainerEnded()) {
      if (gathered_ && shards_ != nullptr) shards_->End();
      return End::kTrainerGone;
    }
    std::shared_ptr<const Measurer> measurer;
    {
      MutexLock lock(mutex_);
      measurer = measurer_;
      if (woken) {
        signalled_ = true;
        signal_.SignalAll();
      }
    }
    if (measurer == nullptr) continue;
    if (std::exchange(woken, false)) measurer->wake();
    look = WatchShards(*measurer);
    PassOnServer(*measurer);
    const double longest_silence = 1e-3 * static_cast<double>(manifest_.longest_silence_ms);
    if (longest_silence > 0 && measurer->silence() > longest_silence) return End::kSilent;
  }
  return End::kStopped;
}

void WorkerLink::WaitForSignal(milliseconds longest) {
  const auto until = steady_clock::now() + longest;
  MutexLock lock(mutex_);
  while (!signalled_ && signal_.WaitUntil(mutex_, until)) {
  }
  signalled_ = false;
}

void WorkerLink::Stop() {
  stopped_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof(one));
  if (gathered_ && shards_ != nullptr) shards_->End();
}

FillOutcome WorkerLink::TakeLast(steady_clock::time_point deadline, const CancelToken& cancel) {
  const auto ask = [&] {
    return shards_ != nullptr ? shards_->AskForLast()
                              : void(page_.last_step.asked.fetch_add(1, std::memory_order_acq_rel));
  };
  const auto answer = [&]() -> std::optional<SnapshotResult> {
    if (shards_ != nullptr) return shards_->LastTaken();
    const Page::LastStep& last = page_.last_step;
    if (last.answered.load(std::memory_order_acquire) != last.asked.load()) return std::nullopt;
    return last.result.load(std::memory_order_relaxed);
  };
  ask();
  const bool far = shards_ != nullptr && shards_->several_hosts();
  const auto until = far ? deadline : std::min(deadline, steady_clock::now() + kLongestCopy);
  std::optional<SnapshotResult> result;
  while (!(result = answer()) || (shards_ != nullptr && result == SnapshotResult::kSkippedBusy)) {
    if (result) {  // a rank holds a step that others do not
      shards_->DropAllBut(page_.board.step().value_or(SlotPage::kNoStep));
      ask();
    }
    if (steady_clock::now() >= until || stopped_ || cancel.cancelled() || TrainerEnded()) {
      return FillOutcome::NotTaken(
          SnapshotResult::kFailed, 0,
          StrCat(shards_ != nullptr ? shards_->WithoutAnswer() : "the trainer",
                 " did not copy its weights", far ? ", or the copy has not arrived" : ""));
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (shards_ != nullptr && result == SnapshotResult::kTaken) {
    if (const std::optional<std::string> apart = shards_->DifferentSteps()) {
      shards_->DropAllBut(SlotPage::kNoStep);
      return FillOutcome::NotTaken(SnapshotResult::kFailed, 0, *apart);
    }
  }
  FillOutcome outcome;
  outcome.result = *result;
  return outcome;
}

}  // namespace ptqwatch::internal
