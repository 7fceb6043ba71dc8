#include "staging/host_relay.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread_priority.h"
#include "staging/shard_address.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long the first host may take to measure, once it has given a sign.
constexpr std::chrono::minutes kLongestStartOfFirst{30};

bool SameButForSteps(std::vector<RankState> a, const std::vector<RankState>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) a[i].step = b[i].step;
  return BytesOf(HostHead(), a) == BytesOf(HostHead(), b);
}

}  // namespace

HostRelay::HostRelay(ShardPlace place, std::vector<Rank> ranks)
    : place_(std::move(place)), job_(KeyOf(place_.job)) {
  for (Rank& rank : ranks) {
    rank.memory->page().slot.TakeOver();
    Followed& followed = ranks_.emplace_back();
    static_cast<Rank&>(followed) = std::move(rank);
    followed.key = KeyOf(*followed.memory);
  }
}

absl::Status HostRelay::Start(steady_clock::time_point until, const std::atomic<bool>& stopped) {
  PTQWATCH_ASSIGN_OR_RETURN(thread_, StartThread("ptqwatch-relay", [this] { Follow(); }));
  RefusalWatch refusals(place_);
  const auto at_most = until + kLongestStartOfFirst;
  while (true) {
    if (stopped) return absl::CancelledError("the monitor was stopped");
    const auto now = steady_clock::now();
    if (const std::string refusal = refusals.Look(now); !refusal.empty()) {
      return absl::FailedPreconditionError(refusal);
    }
    MutexLock lock(mutex_);
    const FirstHost& first = first_.state;
    if (seen_ && first.failed != 0) {
      return absl::FailedPreconditionError(
          StrCat("the first host measures nothing: ", first.reason.data()));
    }
    if (seen_ && first.ended != 0) {
      return absl::FailedPreconditionError("the first host's monitor has ended");
    }
    if (first_.known && first.ready != 0) return absl::OkStatus();
    if (now >= (seen_ ? at_most : until)) {
      return absl::DeadlineExceededError(
          StrCat("this host has only a part of the model, and the first host ",
                 seen_ ? "does not measure" : "gave no sign", " in '", place_.directory, "'",
                 problem_.empty() ? "" : StrCat(" (", problem_, ")"),
                 ": make a monitor on each rank, with a run_dir that all hosts see"));
    }
    changed_.WaitUntil(mutex_, now + kLaterAmongHosts);
  }
}

void HostRelay::Follow() {
  SetThreadPriority(ThreadPriority::kLow);
  milliseconds pause{0};
  while (true) {
    {
      MutexLock lock(mutex_);
      const auto until = steady_clock::now() + pause;
      while (!end_ && steady_clock::now() < until) changed_.WaitUntil(mutex_, until);
      if (end_) return;
    }
    pause = Look() ? kSoonAmongHosts : kLaterAmongHosts;
  }
}

bool HostRelay::Look() {
  const auto read = ReadStateOf<FirstHost, RankOrder>(FirstHostPath(place_));
  if (!read.ok() || read->first.job != job_) return false;
  const auto& [state, orders] = *read;
  std::string bytes = BytesOf(state, orders);
  bool changed = std::exchange(read_, bytes) != bytes;
  if (state.session != session_) {
    // One that has ended was of an earlier launch, or another process takes its place.
    if (state.ended != 0) return false;
    const absl::Status greeted = Greet(state, orders);
    if (!greeted.ok()) failed_(Severity::kError, StrCat(greeted));
    MutexLock lock(mutex_);
    problem_ = greeted.ok() ? "" : StrCat(greeted);
    if (!greeted.ok()) return false;
  }
  const bool known = Obey(orders);
  First first{.state = state, .known = known};
  {
    MutexLock lock(mutex_);
    first.before = first_.before;
    if (first_.state.session != state.session) {
      first.before = seen_ ? first_.newest() : FinishesBefore(state, known);
    }
  }
  if (known && state.ready != 0) PassOn(first);
  {
    MutexLock lock(mutex_);
    first_ = first;
    seen_ = true;
    changed_.SignalAll();
  }
  std::vector<RankState> before;
  std::vector<RankState> states;
  for (Followed& rank : ranks_) {
    before.push_back(rank.told);
    states.push_back(rank.told = StateOf(rank));
  }
  changed = changed || !SameButForSteps(before, states);
  bytes = BytesOf(HostHead{session_}, states);
  if (bytes == told_) return changed;
  const absl::Status written = WriteState(HostStatePath(folder_), bytes);
  if (written.ok()) {
    told_ = std::move(bytes);
  } else {
    failed_(Severity::kError, StrCat(written));
  }
  return changed && written.ok();
}

absl::Status HostRelay::Greet(const FirstHost& first, const std::vector<RankOrder>& orders) {
  std::error_code error;
  const std::string folder = HostFolder(place_, place_.host, first.session);
  if (!folder_.empty() && folder_ != folder) std::filesystem::remove_all(folder_, error);
  folder_ = folder;
  std::filesystem::create_directories(folder_, error);
  if (error) return absl::UnavailableError(StrCat(folder_, ": ", error.message()));
  told_.clear();
  for (Followed& rank : ranks_) {
    // Asked again at worst.
    rank.asked = rank.freed = 0;
    rank.told = {.rank = rank.rank, .memory = rank.key};
    const auto order = std::find_if(orders.begin(), orders.end(), [&](const RankOrder& other) {
      return other.rank == rank.rank && other.memory == rank.key;
    });
    if (order != orders.end()) continue;  // an earlier process of this host has written it
    PTQWATCH_RETURN_IF_ERROR(WriteImage(PathOf(rank, 0), *rank.memory, cancel_));
  }
  session_ = first.session;
  return absl::OkStatus();
}

int64_t HostRelay::FinishesBefore(const FirstHost& first, bool known) const {
  const int64_t finished = ranks_.back().memory->page().answers.finished;
  // If the first host knows the ranks already, an earlier process of this host has passed on its.
  return ranks_.size() > 1 ? std::max<int64_t>(0, finished - (known ? first.finished : 0)) : 0;
}

bool HostRelay::Obey(const std::vector<RankOrder>& orders) {
  size_t known = 0;
  for (const RankOrder& order : orders) {
    for (Followed& rank : ranks_) {
      if (rank.rank != order.rank || rank.key != order.memory) continue;
      Obey(order, rank);
      ++known;
    }
  }
  return known == ranks_.size();
}

void HostRelay::Obey(const RankOrder& order, Followed& rank) {
  Page& page = rank.memory->page();
  if (order.asked != rank.asked) {
    rank.asked = order.asked;
    page.last_step.asked.fetch_add(1, std::memory_order_acq_rel);
  }
  const int64_t image = rank.told.image;
  if (image <= rank.freed || order.freed < image) return;
  rank.freed = image;
  unlink(PathOf(rank, image).c_str());
  if (!page.slot.filled() || page.slot.newest() != image) return;
  if (order.dropped >= image) return page.slot.Drop();
  page.slot.BeginLoading();
  page.slot.Release();
  page.slot.Done();
}

void HostRelay::PassOn(const First& first) {
  const FirstHost& state = first.state;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Page& page = ranks_[i].memory->page();
    if (!page.past_known && state.past_known != 0) {
      std::copy(state.past.begin(), state.past.end(), reinterpret_cast<char*>(&page.past));
      page.past_known = true;
    }
    TrainerSwitches& to = page.switches;
    to.every = state.every;
    to.stretch = static_cast<int>(state.stretch);
    to.paused = state.paused != 0;
    to.requests = state.requests;
    to.nothing_to_measure = state.nothing_to_measure != 0;
    if (i == 0) continue;  // this process answers its own trainer
    Page::Answers& answers = page.answers;
    answers.ready = getpid();
    if (first.newest() <= answers.finished) continue;
    answers.finished_first = first.first();
    answers.finished_step = state.finished_step;
    answers.code = static_cast<absl::StatusCode>(state.code);
    answers.reason = state.reason;
    answers.sequence = 0;  // the journal is the first host's
    answers.finished.store(first.newest(), std::memory_order_release);
  }
}

RankState HostRelay::StateOf(Followed& rank) {
  Page& page = rank.memory->page();
  RankState state = rank.told;
  // Before the slot, which is filled before the step after it.
  state.step = page.board.step().value_or(SlotPage::kNoStep);
  const Page::LastStep& last = page.last_step;
  const bool answered = last.answered.load(std::memory_order_acquire) == last.asked.load();
  const auto result = last.result.load();
  if (page.slot.filled()) {
    // No other step comes into a slot that is filled, so this is the step of the snapshot or later.
    state.step = page.board.step().value_or(SlotPage::kNoStep);
    const int64_t number = page.slot.newest();
    if (number != state.image) {
      const absl::Status written = WriteImage(PathOf(rank, number), *rank.memory, cancel_);
      if (written.ok()) {
        state.image = number;
      } else {
        failed_(Severity::kError, StrCat(written));
        rank.failed = number;
        page.slot.Drop();
      }
    }
  }
  if (!answered) return state;
  const bool lost = result == SnapshotResult::kTaken && rank.failed == page.slot.newest();
  state.answered = rank.asked;
  state.result = static_cast<int64_t>(lost ? SnapshotResult::kFailed : result);
  return state;
}

std::optional<absl::Status> HostRelay::Finished(int64_t step) {
  MutexLock lock(mutex_);
  const FirstHost& first = first_.state;
  if (first.finished_step == step && TakeFinish(first_.first(), first_.newest(), returned_)) {
    return absl::Status(static_cast<absl::StatusCode>(first.code), first.reason.data());
  }
  if (first.ended == 0) return std::nullopt;
  return absl::UnavailableError("the first host's monitor has ended");
}

void HostRelay::End() noexcept {
  {
    MutexLock lock(mutex_);
    if (end_) return;
    end_ = true;
    cancel_.Cancel();
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.Join();
  std::error_code ignored;
  if (folder_.empty()) return;
  std::filesystem::remove_all(folder_, ignored);
  RemoveIfLast(place_, session_);
}

}  // namespace ptqwatch::internal
