#include "staging/host_relay.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread_priority.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// As those of FarRanks.
constexpr milliseconds kSoonForRelay{10};
constexpr milliseconds kLaterForRelay{100};

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
  MutexLock lock(mutex_);
  while (!known_ || first_.ready == 0) {
    if (known_ && first_.failed != 0) {
      return absl::FailedPreconditionError(
          StrCat("the first host measures nothing: ", first_.reason.data()));
    }
    if (stopped) return absl::CancelledError("the monitor was stopped");
    if (steady_clock::now() >= until) {
      return absl::DeadlineExceededError(StrCat(
          "this host has only a part of the model, and the first host gave no sign in '",
          place_.directory, "': make a monitor on each rank, with a run_dir that all hosts see"));
    }
    changed_.WaitUntil(mutex_, steady_clock::now() + kLaterForRelay);
  }
  return absl::OkStatus();
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
    pause = Look() ? kSoonForRelay : kLaterForRelay;
  }
}

bool HostRelay::Look() {
  const auto read = ReadStateOf<FirstHost, RankOrder>(FirstHostPath(place_));
  if (!read.ok() || read->first.job != job_) return false;
  const auto& [first, orders] = *read;
  if (first.session != session_) {
    if (const absl::Status greeted = Greet(first.session); !greeted.ok()) {
      Log(Severity::kError, StrCat(greeted));
      return false;
    }
  }
  std::string bytes = BytesOf(first, orders);
  const bool news = bytes != read_;
  read_ = std::move(bytes);
  Obey(first, orders);
  std::vector<RankState> states;
  for (Followed& rank : ranks_) states.push_back(rank.told = StateOf(rank));
  bytes = BytesOf(HostHead{session_}, states);
  if (bytes == told_) return news;
  if (const absl::Status written = WriteState(HostStatePath(folder_), bytes); written.ok()) {
    told_ = std::move(bytes);
  } else {
    Log(Severity::kError, StrCat(written));
  }
  return true;
}

absl::Status HostRelay::Greet(const HostKey& session) {
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  folder_ = HostFolder(place_, place_.host, session);
  std::filesystem::create_directories(folder_, error);
  if (error) return absl::UnavailableError(StrCat(folder_, ": ", error.message()));
  told_.clear();
  for (Followed& rank : ranks_) {
    rank.asked = 0;
    rank.told = {.rank = rank.rank, .memory = rank.key};
    PTQWATCH_RETURN_IF_ERROR(WriteImage(PathOf(rank, 0), *rank.memory));
  }
  session_ = session;
  return absl::OkStatus();
}

void HostRelay::Obey(const FirstHost& first, const std::vector<RankOrder>& orders) {
  size_t known = 0;
  for (const RankOrder& order : orders) {
    for (Followed& rank : ranks_) {
      if (rank.rank != order.rank || rank.key != order.memory) continue;
      Obey(order, rank);
      ++known;
    }
  }
  if (known < ranks_.size()) return;  // of an earlier launch, or not yet of this one
  MutexLock lock(mutex_);
  const bool finished =
      first.finished > (known_ && first_.session == first.session ? first_.finished : 0);
  PassOn(first, finished);
  if (finished) ++finishes_;
  known_ = true;
  first_ = first;
  changed_.SignalAll();
}

void HostRelay::Obey(const RankOrder& order, Followed& rank) {
  Page& page = rank.memory->page();
  if (order.asked != rank.asked) {
    rank.asked = order.asked;
    page.last_step.asked.fetch_add(1, std::memory_order_acq_rel);
  }
  const int64_t image = rank.told.image;
  if (image == 0 || order.freed < image) return;
  unlink(PathOf(rank, image).c_str());
  if (!page.slot.filled() || page.slot.newest() != image) return;
  if (order.dropped >= image) return page.slot.Drop();
  page.slot.BeginLoading();
  page.slot.Release();
  page.slot.Done();
}

void HostRelay::PassOn(const FirstHost& first, bool finished) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Page& page = ranks_[i].memory->page();
    if (!page.past_known && first.past_known != 0) {
      std::copy(first.past.begin(), first.past.end(), reinterpret_cast<char*>(&page.past));
      page.past_known = true;
    }
    TrainerSwitches& to = page.switches;
    to.every = first.every;
    to.stretch = static_cast<int>(first.stretch);
    to.paused = first.paused != 0;
    to.requests = first.requests;
    to.nothing_to_measure = first.nothing_to_measure != 0;
    Page::Answers& answers = page.answers;
    if (i == 0) continue;  // this process answers its own trainer
    if (first.ready != 0) answers.ready = getpid();
    if (!finished) continue;
    answers.finished_step = first.finished_step;
    answers.code = static_cast<absl::StatusCode>(first.code);
    answers.reason = first.reason;
    answers.sequence = 0;  // the journal is the first host's
    answers.finished.fetch_add(1, std::memory_order_release);
  }
}

RankState HostRelay::StateOf(Followed& rank) {
  Page& page = rank.memory->page();
  RankState state = rank.told;
  // Before the slot, which is filled before the step after it.
  state.step = page.board.step().value_or(SlotPage::kNoStep);
  const Page::LastStep& last = page.last_step;
  if (last.answered.load(std::memory_order_acquire) == last.asked.load()) {
    state.answered = rank.asked;
    state.result = static_cast<int64_t>(last.result.load());
  }
  if (!page.slot.filled() || page.slot.newest() == state.image) return state;
  if (const absl::Status written = WriteImage(PathOf(rank, page.slot.newest()), *rank.memory);
      written.ok()) {
    state.image = page.slot.newest();
  } else {
    Log(Severity::kError, StrCat(written));
    page.slot.Drop();
  }
  return state;
}

std::optional<absl::Status> HostRelay::Finished(int64_t step) {
  MutexLock lock(mutex_);
  if (finishes_ == returned_ || first_.finished_step != step) return std::nullopt;
  returned_ = finishes_;
  return absl::Status(static_cast<absl::StatusCode>(first_.code), first_.reason.data());
}

void HostRelay::End() noexcept {
  {
    MutexLock lock(mutex_);
    if (end_) return;
    end_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.Join();
  std::error_code ignored;
  if (folder_.empty()) return;
  std::filesystem::remove_all(folder_, ignored);
  RemoveIfLast(place_, session_);
}

}  // namespace ptqwatch::internal
