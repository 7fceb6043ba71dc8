#include "staging/far_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "base/thread_priority.h"
#include "staging/shard_address.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookForHosts{100};
// How long to wait for the next look at the other hosts' files, if something has just changed and
// if nothing has.
constexpr milliseconds kSoon{10};
constexpr milliseconds kLater{100};

// Of processes that were killed.
void RemoveOldFolders(const ShardPlace& place) {
  std::error_code error;
  std::vector<std::filesystem::path> old;
  for (std::filesystem::directory_iterator entry(place.directory, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with("host-")) old.push_back(entry->path());
  }
  for (const std::filesystem::path& path : old) std::filesystem::remove_all(path, error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FarRanks>> FarRanks::Join(const ShardPlace& place,
                                                         steady_clock::time_point until,
                                                         const std::atomic<bool>& stopped) {
  // std::random_device leaves the trainer's generators alone.
  std::random_device random;
  std::unique_ptr<FarRanks> far(
      new FarRanks(place, KeyOf(StrCat(random(), random(), ":", getpid()))));
  if (const absl::Status met = far->MeetAll(until, stopped); !met.ok()) {
    far->Fail(Message(met));
    return met;
  }
  return far;
}

FarRanks::FarRanks(ShardPlace place, HostKey session)
    : place_(std::move(place)), session_(session) {}

absl::Status FarRanks::MeetAll(steady_clock::time_point until, const std::atomic<bool>& stopped) {
  RemoveOldFolders(place_);
  Tell();
  for (int64_t host = 1; host < place_.hosts;) {
    PTQWATCH_ASSIGN_OR_RETURN(const bool met, Meet(host));
    if (met) {
      ++host;
      continue;
    }
    if (stopped) return absl::CancelledError("the monitor was stopped");
    ShardPlace there = place_;
    there.host = host;
    if (const std::string refusal = FindRefusal(there); !refusal.empty()) {
      return absl::FailedPreconditionError(refusal);
    }
    if (steady_clock::now() >= until) {
      return absl::DeadlineExceededError(
          StrCat("this host has only a part of the model, and host ", host, " of ", place_.hosts,
                 " did not share its part in '", place_.directory,
                 "': make a monitor on each rank, with a run_dir that all hosts see"));
    }
    std::this_thread::sleep_for(kLookForHosts);
  }
  PTQWATCH_ASSIGN_OR_RETURN(thread_, StartThread("ptqwatch-hosts", [this] { Follow(); }));
  return absl::OkStatus();
}

absl::StatusOr<bool> FarRanks::Meet(int64_t host) {
  const std::string folder = HostFolder(place_, host, session_);
  const auto state = ReadStateOf<HostHead, RankState>(HostStatePath(folder));
  if (absl::IsNotFound(state.status())) return false;
  PTQWATCH_RETURN_IF_ERROR(state.status());
  for (const RankState& rank : state->second) {
    const std::string path = ImagePath(folder, rank.rank, 0);
    PTQWATCH_ASSIGN_OR_RETURN(SharedMemory memory, MemoryOfImage(path, rank.memory));
    unlink(path.c_str());
    PTQWATCH_ASSIGN_OR_RETURN(Manifest manifest, ManifestFromJson(memory.manifest()));
    index_[rank.rank] = ranks_.size();
    ranks_.push_back({rank.rank, host, std::make_shared<const SharedMemory>(std::move(memory)),
                      std::move(manifest)});
    progress_.push_back({.memory = rank.memory});
  }
  return true;
}

void FarRanks::Follow() {
  SetThreadPriority(ThreadPriority::kLow);
  milliseconds pause = kSoon;
  while (true) {
    {
      MutexLock lock(mutex_);
      const auto until = steady_clock::now() + pause;
      while (!end_ && ended_.WaitUntil(mutex_, until)) {
      }
      if (end_) return;
    }
    bool changed = false;
    for (int64_t host = 1; host < place_.hosts; ++host) changed = Receive(host) || changed;
    const std::string before = told_;
    Tell();
    pause = changed || told_ != before ? kSoon : kLater;
  }
}

bool FarRanks::Receive(int64_t host) {
  const auto read =
      ReadStateOf<HostHead, RankState>(HostStatePath(HostFolder(place_, host, session_)));
  if (!read.ok()) return false;
  bool changed = false;
  for (const RankState& state : read->second) {
    const auto known = index_.find(state.rank);
    // Otherwise it is a rank of another launch.
    if (known == index_.end() || progress_[known->second].memory != state.memory) continue;
    changed = Receive(ranks_[known->second], state, progress_[known->second]) || changed;
  }
  return changed;
}

bool FarRanks::Receive(const Rank& rank, const RankState& state, Progress& progress) {
  Page& page = rank.memory->page();
  const auto step_to = [&](int64_t step) {
    if (step == SlotPage::kNoStep || page.board.step() == step) return false;
    page.board.OnStep({.step = step}, LrPhase::kUnknown,
                      InSeconds(steady_clock::now().time_since_epoch()));
    return true;
  };
  bool changed = false;
  if (state.image > progress.taken && page.slot.Claim()) {
    changed = true;
    progress.taken = state.image;
    const std::string path =
        ImagePath(HostFolder(place_, rank.host, session_), rank.rank, state.image);
    const absl::StatusOr<SnapshotHeader> header = ReadImage(path, state.memory, *rank.memory);
    if (header.ok()) {
      // The step is that of the snapshot while it arrives, as it is on this host.
      step_to(header->info.step);
      page.slot.header = *header;
      page.slot.Offer();
    } else {
      Log(Severity::kError, StrCat(header.status()));
      page.slot.Abandon();
      progress.dropped = state.image;
    }
  }
  changed = step_to(state.step) || changed;
  if (progress.freed != progress.taken && page.slot.free()) {
    changed = true;
    progress.freed = progress.taken;
    if (page.slot.dropped() == page.slot.newest()) progress.dropped = progress.taken;
  }
  Page::LastStep& last = page.last_step;
  if (state.answered == last.asked && state.answered != last.answered) {
    changed = true;
    last.result = static_cast<SnapshotResult>(state.result);
    last.answered.store(state.answered, std::memory_order_release);
  }
  return changed;
}

FirstHost FarRanks::StateForOthers() {
  FirstHost state{.job = KeyOf(place_.job), .session = session_};
  MutexLock lock(mutex_);
  state.ended = end_ ? 1 : 0;
  state.failed = failure_.empty() ? 0 : 1;
  Put(failure_, state.reason);
  if (state.failed != 0 || ranks_.empty()) return state;
  const Page& page = ranks_[0].memory->page();
  const Page::Answers& answers = page.answers;
  state.ready = answers.ready != 0 ? 1 : 0;
  state.every = page.switches.every;
  state.stretch = page.switches.stretch;
  state.paused = page.switches.paused ? 1 : 0;
  state.requests = page.switches.requests;
  state.nothing_to_measure = page.switches.nothing_to_measure ? 1 : 0;
  state.finished = answers.finished.load(std::memory_order_acquire);
  state.finished_step = answers.finished_step;
  state.code = static_cast<int64_t>(answers.code.load());
  state.reason = answers.reason;
  state.past_known = page.past_known ? 1 : 0;
  const auto* const past = reinterpret_cast<const char*>(&page.past);
  if (state.past_known != 0) std::copy_n(past, state.past.size(), state.past.data());
  return state;
}

void FarRanks::Tell() {
  std::vector<RankOrder> orders;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Progress& progress = progress_[i];
    orders.push_back({.rank = ranks_[i].rank,
                      .memory = progress.memory,
                      .asked = ranks_[i].memory->page().last_step.asked,
                      .freed = progress.freed,
                      .dropped = progress.dropped});
  }
  std::string bytes = BytesOf(StateForOthers(), orders);
  if (bytes == told_) return;
  if (const absl::Status written = WriteState(FirstHostPath(place_), bytes); written.ok()) {
    told_ = std::move(bytes);
  } else {
    Log(Severity::kError, StrCat(written));
  }
}

void FarRanks::Fail(std::string_view why) {
  {
    MutexLock lock(mutex_);
    failure_ = why;
  }
  End();
}

void FarRanks::End() noexcept {
  {
    MutexLock lock(mutex_);
    if (end_) return;
    end_ = true;
    ended_.SignalAll();
  }
  if (thread_.joinable()) thread_.Join();
  Tell();
  RemoveIfLast(place_, session_);
}

}  // namespace ptqwatch::internal
