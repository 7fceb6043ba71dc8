#include "staging/shards.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "c10/util/accumulate.h"
#include "handover/shared_text.h"
#include "staging/shard_address.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookForRanks{50};
// How far ranks may be apart in time. Training itself lets them wait for each other.
constexpr std::chrono::seconds kLongestWait{60};
// The same if the snapshots of other hosts come through a file system.
constexpr std::chrono::seconds kLongestWaitForHosts{600};

// The memory behind a path; an error if there is none, or none of this launch.
absl::StatusOr<std::pair<std::shared_ptr<const SharedMemory>, Manifest>> MemoryAt(
    const std::string& path, const ShardPlace& own, int64_t rank) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, path);
  PTQWATCH_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(file));
  PTQWATCH_ASSIGN_OR_RETURN(Manifest manifest, ManifestFromJson(memory.manifest()));
  if (!manifest.shard || manifest.shard->job != own.job || manifest.shard->rank != rank) {
    return absl::NotFoundError(StrCat(path, " is the memory of another launch"));
  }
  return std::pair{std::make_shared<const SharedMemory>(std::move(memory)), std::move(manifest)};
}

std::string Listed(const std::vector<int64_t>& ranks) {
  std::string text;
  for (const int64_t rank : ranks) text += StrCat(text.empty() ? "" : ", ", rank);
  return StrCat(ranks.size() == 1 ? "rank " : "ranks ", text);
}

}  // namespace

absl::StatusOr<std::vector<Shards::Rank>> Shards::Gather(std::shared_ptr<const SharedMemory> own,
                                                         const Manifest& manifest, pid_t trainer,
                                                         steady_clock::time_point until,
                                                         const std::atomic<bool>& stopped) {
  const ShardPlace& place = *manifest.shard;
  std::map<int64_t, Rank> ranks;
  ranks[place.rank] = {place.rank, std::move(own), manifest};
  std::string problem;
  while (std::ssize(ranks) < place.local_ranks) {
    if (stopped) return absl::CancelledError("the monitor was stopped");
    const ShardsFound found = FindShards(place);
    for (const auto& [rank, why] : found.refusals) {
      return absl::FailedPreconditionError(
          StrCat("rank ", rank, " does not share its part of the model: ", why));
    }
    for (const auto& [rank, path] : found.memory) {
      if (ranks.contains(rank)) continue;
      auto memory = MemoryAt(path, place, rank);
      if (memory.ok()) {
        pid_t first = 0;
        if (!memory->first->page().first_rank.compare_exchange_strong(first, trainer) &&
            first != trainer) {
          return absl::FailedPreconditionError(
              StrCat("the process of ", path, " is rank ", rank,
                     " of a run in the same directory, and measured for process ", first,
                     ": give this run a run_dir of its own"));
        }
        ranks[rank] = {rank, std::move(memory->first), std::move(memory->second)};
      } else {
        problem = StrCat(" (of rank ", rank, ": ", memory.status(), ")");
      }
    }
    if (std::ssize(ranks) >= place.local_ranks) break;
    if (steady_clock::now() >= until) {
      std::vector<int64_t> here;
      for (const auto& [rank, unused] : ranks) here.push_back(rank);
      if (!found.unreachable.empty()) {
        problem = StrCat("; the process of ", Listed(found.unreachable),
                         " is in another PID namespace (a container of its own), where its memory "
                         "cannot be opened");
      }
      return absl::DeadlineExceededError(
          StrCat("the model is sharded over ", place.local_ranks, " ranks of this host, and only ",
                 Listed(here), " shared a part of it: make a monitor on each rank", problem));
    }
    std::this_thread::sleep_for(kLookForRanks);
  }
  std::vector<Rank> listed;
  listed.push_back(std::move(ranks.extract(place.rank).mapped()));
  for (auto& [unused, rank] : ranks) listed.push_back(std::move(rank));
  return listed;
}

absl::StatusOr<std::unique_ptr<Shards>> Shards::Open(std::shared_ptr<const SharedMemory> own,
                                                     const Manifest& manifest, pid_t trainer,
                                                     steady_clock::time_point until,
                                                     const std::atomic<bool>& stopped) {
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<Rank> ranks,
                            Gather(std::move(own), manifest, trainer, until, stopped));
  std::unique_ptr<Shards> shards(new Shards(std::move(ranks)));
  absl::Status whole = shards->Assemble();
  if (absl::IsNotFound(whole) && manifest.shard->hosts > 1) {
    whole = shards->LookToOtherHosts(*manifest.shard, until, stopped);
  }
  PTQWATCH_RETURN_IF_ERROR(whole);
  return shards;
}

absl::Status Shards::LookToOtherHosts(const ShardPlace& place, steady_clock::time_point until,
                                      const std::atomic<bool>& stopped) {
  if (place.host > 0) {
    std::vector<HostRelay::Rank> local;
    for (const Rank& rank : ranks_) local.push_back({rank.rank, rank.memory});
    relay_ = std::make_unique<HostRelay>(place, std::move(local));
    return absl::OkStatus();
  }
  PTQWATCH_ASSIGN_OR_RETURN(far_, FarRanks::Join(place, until, stopped));
  for (const FarRanks::Rank& rank : far_->ranks()) {
    ranks_.push_back({rank.rank, rank.memory, rank.manifest});
  }
  const absl::Status whole = Assemble();
  if (!whole.ok()) far_->Fail(Message(whole));
  return whole;
}

void Shards::Fail(std::string_view why) noexcept {
  if (far_ != nullptr) far_->Fail(why);
}

void Shards::End() noexcept {
  if (far_ != nullptr) far_->End();
  if (relay_ != nullptr) relay_->End();
}

absl::Status Shards::Assemble() {
  for (const Rank& rank : ranks_) {
    const std::string& schedule = ranks_[0].manifest.schedule;
    if (rank.manifest.schedule == schedule) continue;
    return absl::FailedPreconditionError(
        StrCat("the ranks have different options: schedule of rank ", ranks_[0].rank, ": ",
               schedule, "; of rank ", rank.rank, ": ", rank.manifest.schedule));
  }
  std::vector<WholeTensors::Rank> weights;
  std::vector<WholeTensors::Rank> moments;
  std::vector<std::vector<SharedTensor>> layouts;  // of the moments, which are cut as the weights
  layouts.reserve(ranks_.size());
  for (Rank& rank : ranks_) {
    weights.push_back({rank.rank, rank.memory.get(), &rank.manifest.layout});
    rank.optimizer = SharedOptimizer::In(*rank.memory, rank.manifest.optimizer);
    std::map<std::string_view, const SharedTensor*> named;
    for (const SharedTensor& tensor : rank.manifest.layout) named[tensor.name] = &tensor;
    std::vector<SharedTensor>& layout = layouts.emplace_back();
    for (const SharedTensor& moment : rank.manifest.optimizer.moments) {
      if (moment.offset == 0) continue;
      const SharedTensor& weight = *named.at(moment.name);
      layout.push_back(moment);
      layout.back().global_shape = weight.global_shape;
      layout.back().part_offset = weight.part_offset;
    }
    moments.push_back({rank.rank, rank.memory.get(), &layout});
  }
  PTQWATCH_ASSIGN_OR_RETURN(weights_, WholeTensors::Make(weights));
  PTQWATCH_ASSIGN_OR_RETURN(moments_, WholeTensors::Make(moments));
  weights_->Assemble();
  moments_->Assemble();
  return absl::OkStatus();
}

int64_t Shards::assembled_bytes() const {
  int64_t sum = 0;
  for (const WholeTensors* whole : {&*weights_, &*moments_}) {
    for (const auto& [rank, bytes] : whole->bytes()) sum += bytes;
  }
  return sum;
}

std::optional<OptimizerView> Shards::Optimizer() const {
  std::map<std::string_view, at::Tensor> whole;
  for (const NamedTensor& moment : moments_->tensors()) whole[moment.name] = moment.tensor;
  std::optional<OptimizerView> all;
  struct Known {
    size_t index;
    bool has_part;  // of a rank with elements
  };
  std::map<std::string, Known> known;
  for (const Rank& rank : ranks_) {
    std::optional<OptimizerView> view = rank.optimizer ? rank.optimizer->Read() : std::nullopt;
    if (!view) continue;
    if (!all) {
      all = *view;
      all->parameters.clear();
    }
    if (all->unavailable.empty()) all->unavailable = view->unavailable;
    std::set<std::string_view> empty;
    for (const SharedTensor& tensor : rank.manifest.layout) {
      if (c10::multiply_integers(tensor.sizes) == 0) empty.insert(tensor.name);
    }
    for (OptimizedParameter& parameter : view->parameters) {
      if (parameter.second_moment.defined()) parameter.second_moment = whole[parameter.name];
      // A rank without elements of a parameter may never have updated it.
      const bool has_part = !empty.contains(parameter.name);
      const auto [found, added] =
          known.try_emplace(parameter.name, Known{all->parameters.size(), has_part});
      if (added) {
        all->parameters.push_back(std::move(parameter));
        continue;
      }
      OptimizedParameter& other = all->parameters[found->second.index];
      if (has_part && !std::exchange(found->second.has_part, true)) {
        other = std::move(parameter);
      } else if (has_part && other.steps != parameter.steps && all->unavailable.empty()) {
        all->unavailable =
            StrCat("the parts of '", parameter.name, "' were not updated alike: ", other.steps,
                   " times, but ", parameter.steps, " times on rank ", rank.rank);
      }
    }
  }
  return all;
}

std::string Shards::Describe() const {
  std::string text =
      StrCat("the model is sharded over ", ranks_.size(), " ranks, which copy their parts:\n");
  for (const Rank& rank : ranks_) {
    const auto bytes = weights_->bytes().find(rank.rank);
    text += bytes == weights_->bytes().end()
                ? StrCat("  rank ", rank.rank, ": only parts that ranks before it have\n")
                : StrFormat("  rank %d: %.3f MB of weights\n", rank.rank,
                            1e-6 * static_cast<double>(bytes->second));
  }
  if (far_ != nullptr) {
    text += StrCat("  those from rank ", far_->ranks().front().rank,
                   " on are on other hosts, and come through run_dir\n");
  }
  return text;
}

bool Shards::AllHold() const {
  const SlotPage& first = ranks_[0].slot();
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return rank.slot().filled() && rank.slot().header.info.step == first.header.info.step &&
           rank.slot().header.pass == first.header.pass;
  });
}

bool Shards::complete() const {
  MutexLock lock(mutex_);
  return AllHold();
}

bool Shards::Begin() noexcept {
  MutexLock lock(mutex_);
  // Rests delay the measurement and not the copies, because ranks would not rest at the same steps.
  const int64_t rest = ranks_[0].page().switches.rest_until_ns;
  if (!AllHold() || steady_clock::now().time_since_epoch() < std::chrono::nanoseconds(rest)) {
    return false;
  }
  for (const Rank& rank : ranks_) rank.slot().BeginLoading();
  weights_->Assemble();
  moments_->Assemble();
  return true;
}

void Shards::Release() noexcept {
  MutexLock lock(mutex_);
  for (const Rank& rank : ranks_) rank.slot().Release();
}

void Shards::Done() noexcept {
  for (const Rank& rank : ranks_) rank.slot().Done();
}

void Shards::TakeOver() noexcept {
  MutexLock lock(mutex_);
  for (const Rank& rank : ranks_) rank.slot().TakeOver();
}

Page& Shards::PageOf(int64_t rank) const {
  return std::find_if(ranks_.begin(), ranks_.end(),
                      [rank](const Rank& other) { return other.rank == rank; })
      ->page();
}

void Shards::PassOn() noexcept {
  const Page& first = ranks_[0].page();
  for (size_t i = 1; i < ranks_.size(); ++i) {
    Page& page = ranks_[i].page();
    if (!page.past_known && first.past_known) {
      page.past = first.past;
      page.past_known = true;
    }
    TrainerSwitches& to = page.switches;
    to.every = first.switches.every.load();
    to.stretch = first.switches.stretch.load();
    to.paused = first.switches.paused.load();
    to.requests = first.switches.requests.load();
    to.nothing_to_measure = first.switches.nothing_to_measure.load();
    page.answers.ready = getpid();  // last: its rank may then train
  }
}

std::optional<std::string> Shards::Lacking(const Rank& rank) const {
  const int64_t held = rank.slot().header.info.step;
  if (rank.page().board.step() < held) return StrCat("rank ", rank.rank, " has gone back");
  for (const Rank& other : ranks_) {
    // Read before the slot, which is filled before the step after it.
    const std::optional<int64_t> step = other.page().board.step();
    const SlotPage& slot = other.slot();
    if (slot.filled() && slot.header.info.step == held) {
      if (slot.header.pass <= rank.slot().header.pass) continue;
      return StrCat("rank ", rank.rank, " holds it from before the steps went back");
    }
    if (step > held) return StrCat("rank ", other.rank, " did not copy its part");
  }
  return std::nullopt;
}

std::optional<std::string> Shards::Drop() {
  MutexLock lock(mutex_);
  std::vector<const Rank*> holding;
  for (const Rank& rank : ranks_) {
    if (rank.slot().filled()) holding.push_back(&rank);
  }
  if (holding.empty() || AllHold()) {
    waiting_for_ = SlotPage::kNoStep;
    return std::nullopt;
  }
  std::optional<std::string> why;
  const auto now = steady_clock::now();
  const int64_t step = holding[0]->slot().header.info.step;
  if (std::exchange(waiting_for_, step) != step) waiting_since_ = now;
  const std::chrono::seconds longest = far_ != nullptr ? kLongestWaitForHosts : kLongestWait;
  const bool too_long = now - waiting_since_ > longest;
  for (const Rank* rank : holding) {
    std::optional<std::string> lacking = Lacking(*rank);
    if (!lacking && !too_long) continue;
    if (!lacking) {
      std::vector<int64_t> missing;
      for (const Rank& other : ranks_) {
        if (!other.slot().filled()) missing.push_back(other.rank);
      }
      lacking = StrCat(Listed(missing), " did not arrive within ", longest.count(), " s");
    }
    const SnapshotHeader& header = rank->slot().header;
    // A request is served again.
    if (rank == &ranks_[0] && header.trigger == SnapshotTrigger::kRequest) {
      rank->page().switches.requests.fetch_add(1);
    }
    if (!why) why = StrCat("the snapshot of step ", header.info.step, " is incomplete: ", *lacking);
    rank->slot().Drop();
  }
  return why;
}

void Shards::DropAllBut(int64_t step) noexcept {
  MutexLock lock(mutex_);
  for (const Rank& rank : ranks_) {
    if (rank.slot().filled() && rank.slot().header.info.step != step) rank.slot().Drop();
  }
}

void Shards::AskForLast() noexcept {
  for (const Rank& rank : ranks_) {
    rank.page().last_step.asked.fetch_add(1, std::memory_order_acq_rel);
  }
}

std::optional<SnapshotResult> Shards::LastTaken() const noexcept {
  SnapshotResult result = SnapshotResult::kTaken;
  for (const Rank& rank : ranks_) {
    const Page::LastStep& last = rank.page().last_step;
    if (last.answered.load(std::memory_order_acquire) != last.asked.load()) return std::nullopt;
    if (result == SnapshotResult::kTaken) result = last.result.load(std::memory_order_relaxed);
  }
  return result;
}

std::string Shards::WithoutAnswer() const {
  std::vector<int64_t> without;
  for (const Rank& rank : ranks_) {
    const Page::LastStep& last = rank.page().last_step;
    if (last.answered != last.asked) without.push_back(rank.rank);
  }
  return Listed(without);
}

void Shards::TellFinished(int64_t last_step, const absl::Status& status,
                          int64_t sequence) noexcept {
  for (size_t i = 1; i < ranks_.size(); ++i) {
    Page::Answers& answers = ranks_[i].page().answers;
    if (answers.finished_step != last_step) answers.finished_first = answers.finished + 1;
    answers.finished_step = last_step;
    answers.code = status.code();
    Put(Message(status), answers.reason);
    answers.sequence = sequence;
    answers.finished.fetch_add(1, std::memory_order_release);
  }
}

std::optional<std::string> Shards::DifferentSteps() const {
  const auto end = [](const Rank& rank) {
    const std::optional<int64_t> step = rank.page().board.step();
    return StrCat("rank ", rank.rank, " ends ", step ? StrCat("at step ", *step) : "before a step");
  };
  for (const Rank& rank : ranks_) {
    if (rank.page().board.step() == ranks_[0].page().board.step()) continue;
    return StrCat(end(ranks_[0]), ", ", end(rank));
  }
  return std::nullopt;
}

}  // namespace ptqwatch::internal
