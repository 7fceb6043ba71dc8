#include "staging/far_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

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
// How often the own file is looked at, which the end of an earlier launch may have overwritten.
constexpr std::chrono::seconds kLookAtOwnFile{1};
// How long a host may take to write its memory, once it has begun.
constexpr std::chrono::minutes kLongestImages{30};

// Processes that were killed leave them.
void RemoveOldFiles(const ShardPlace& place, const HostKey& session) {
  const std::string own(session.data(), session.size());
  std::error_code error;
  std::vector<std::filesystem::path> old;
  for (std::filesystem::directory_iterator entry(place.directory, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if ((name.starts_with("host-") && !name.ends_with(own)) || name.starts_with(".first-host.")) {
      old.push_back(entry->path());
    }
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
  Tell();
  RemoveOldFiles(place_, session_);
  RefusalWatch refusals(place_);
  const auto at_most = until + kLongestImages;
  for (int64_t host = 1; host < place_.hosts;) {
    const absl::Status met = Meet(host);
    if (met.ok()) {
      ++host;
      Tell();  // who was met learns of a failure
      continue;
    }
    const auto now = steady_clock::now();
    if (stopped) return absl::CancelledError("the monitor was stopped");
    if (const std::string refusal = refusals.Look(now); !refusal.empty()) {
      return absl::FailedPreconditionError(refusal);
    }
    std::error_code ignored;
    const bool begun = std::filesystem::exists(FolderOf(host), ignored);
    if (now >= (begun ? at_most : until)) {
      return absl::DeadlineExceededError(
          StrCat("this host has only a part of the model, and host ", host, " of ", place_.hosts,
                 " did not share its part in '", place_.directory, "' (",
                 absl::IsNotFound(met) ? "it has written nothing" : Message(met),
                 "): make a monitor on each rank, with a run_dir that all hosts see"));
    }
    std::this_thread::sleep_for(kLookForHosts);
  }
  PTQWATCH_ASSIGN_OR_RETURN(thread_, StartThread("ptqwatch-hosts", [this] { Follow(); }));
  return absl::OkStatus();
}

absl::Status FarRanks::Meet(int64_t host) {
  const std::string folder = FolderOf(host);
  PTQWATCH_ASSIGN_OR_RETURN(const auto state,
                            (ReadStateOf<HostHead, RankState>(HostStatePath(folder))));
  std::vector<Rank> met;
  for (const RankState& rank : state.second) {
    const std::string path = ImagePath(folder, rank.rank, 0);
    PTQWATCH_ASSIGN_OR_RETURN(SharedMemory memory, MemoryOfImage(path, rank.memory, cancel_));
    // Until the first host has a measurement, nothing is due.
    memory.page().switches.nothing_to_measure = true;
    PTQWATCH_ASSIGN_OR_RETURN(Manifest manifest, ManifestFromJson(memory.manifest()));
    met.push_back({rank.rank, host, std::make_shared<const SharedMemory>(std::move(memory)),
                   std::move(manifest)});
  }
  for (size_t i = 0; i < met.size(); ++i) {
    unlink(ImagePath(folder, met[i].rank, 0).c_str());
    index_[met[i].rank] = ranks_.size();
    ranks_.push_back(std::move(met[i]));
    progress_.push_back({.memory = state.second[i].memory});
  }
  return absl::OkStatus();
}

void FarRanks::Follow() {
  SetThreadPriority(ThreadPriority::kLow);
  milliseconds pause = kSoonAmongHosts;
  auto looked = steady_clock::now();
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
    if (const auto now = steady_clock::now(); now - looked >= kLookAtOwnFile) {
      looked = now;
      if (!Holds()) told_.clear();
    }
    changed = Tell() || changed;
    pause = changed ? kSoonAmongHosts : kLaterAmongHosts;
  }
}

bool FarRanks::Receive(int64_t host) {
  const auto read = ReadStateOf<HostHead, RankState>(HostStatePath(FolderOf(host)));
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
    if (step == SlotPage::kNoStep || page.board.step() == step) return;
    page.board.OnStep({.step = step}, LrPhase::kUnknown,
                      InSeconds(steady_clock::now().time_since_epoch()));
  };
  bool changed = false;
  if (state.image > progress.taken && page.slot.Claim()) {
    changed = true;
    progress.taken = state.image;
    const absl::StatusOr<SnapshotHeader> header =
        ReadImage(ImagePath(FolderOf(rank.host), rank.rank, state.image), state.memory,
                  *rank.memory, cancel_);
    if (header.ok()) {
      // The step is that of the snapshot while it arrives, as it is on this host.
      step_to(header->info.step);
      page.slot.header = *header;
      page.slot.Offer();
    } else {
      if (!absl::IsCancelled(header.status())) {
        failed_(Severity::kError, StrCat(header.status()));
      }
      page.slot.Abandon();
      progress.dropped = state.image;
    }
  }
  step_to(state.step);
  if (progress.freed != progress.taken && page.slot.free()) {
    changed = true;
    progress.freed = progress.taken;
    if (page.slot.dropped() == page.slot.newest()) progress.dropped = progress.taken;
  }
  Page::LastStep& last = page.last_step;
  if (state.answered == last.asked && state.answered != last.answered) {
    changed = true;
    const auto result = static_cast<SnapshotResult>(state.result);
    const bool lost = result == SnapshotResult::kTaken && state.image == progress.dropped;
    last.result = lost ? SnapshotResult::kFailed : result;
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
  state.finished_first = answers.finished_first;
  state.code = static_cast<int64_t>(answers.code.load());
  state.reason = answers.reason;
  state.past_known = page.past_known ? 1 : 0;
  const auto* const past = reinterpret_cast<const char*>(&page.past);
  if (state.past_known != 0) std::copy_n(past, state.past.size(), state.past.data());
  return state;
}

bool FarRanks::Tell() {
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
  if (bytes == told_) return false;
  const absl::Status written = WriteState(FirstHostPath(place_), bytes);
  if (written.ok()) {
    told_ = std::move(bytes);
  } else {
    failed_(Severity::kError, StrCat(written));
  }
  return written.ok();
}

bool FarRanks::Holds() const {
  const auto file = ReadStateOf<FirstHost, RankOrder>(FirstHostPath(place_));
  return file.ok() && file->first.session == session_;
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
    cancel_.Cancel();
    ended_.SignalAll();
  }
  if (thread_.joinable()) thread_.Join();
  if (!Holds()) return;  // the file is a later launch's
  Tell();
  RemoveIfLast(place_, session_);
}

}  // namespace ptqwatch::internal
