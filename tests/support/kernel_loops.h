#ifndef PTQWATCH_TESTS_SUPPORT_KERNEL_LOOPS_H_
#define PTQWATCH_TESTS_SUPPORT_KERNEL_LOOPS_H_

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cuda/kernels/kernel.h"

/// Runs a kernel's body on the host, in ways that show what a GPU would show only now and then.

namespace ptqwatch::testing {

inline constexpr int kUndefined = 0xff;  // four of them are a NaN

/// The kernel's type, without namespaces.
std::string KernelName(const std::type_info& kernel);

/// A block's Shared, of which every thread of a phase has a copy as at the phase's begin.
class SharedCopies {
 public:
  explicit SharedCopies(size_t bytes) : begin_(bytes), copy_(bytes), end_(bytes), writer_(bytes) {}

  /// Fills a new block's Shared with kUndefined.
  void BeginBlock();
  /// The next thread's copy.
  void* copy() { return copy_.data(); }
  /// Takes over the bytes that the thread changed, and renews the copy. Returns Internal if an
  /// earlier thread of this phase changed one of them. A byte that is overwritten with its value
  /// counts as unchanged.
  absl::Status Merge(int thread);
  void EndPhase();

 private:
  absl::Status MergePiece(int thread, size_t begin, size_t end, size_t together);

  std::vector<char> begin_;
  std::vector<char> copy_;
  std::vector<char> end_;
  std::vector<int64_t> writer_;  // phase and thread of the last change
  int64_t phase_ = 1;
};

template <typename Local>
void MakeUndefined(std::vector<Local>& locals) {
  std::memset(static_cast<void*>(locals.data()), kUndefined, sizeof(Local) * locals.size());
}

template <int kPhase, typename K>
absl::Status RunPhaseInTurn(const K& kernel, int64_t block, bool backwards, SharedCopies& shared,
                            std::vector<typename K::Local>& locals) {
  for (int i = 0; i < K::kThreads; ++i) {
    const int thread = backwards ? K::kThreads - 1 - i : i;
    kernel.template Run<kPhase>(internal::Place{.block = block, .thread = thread},
                                *static_cast<typename K::Shared*>(shared.copy()),
                                locals[static_cast<size_t>(thread)]);
    if (const absl::Status merged = shared.Merge(thread); !merged.ok()) {
      return absl::InternalError(internal::StrCat(KernelName(typeid(K)), ", phase ", kPhase,
                                                  ", block ", block, ": ", merged.message()));
    }
  }
  shared.EndPhase();
  return absl::OkStatus();
}

template <typename K, int... kPhase>
absl::Status RunBlockInTurn(const K& kernel, int64_t block, bool backwards, SharedCopies& shared,
                            std::vector<typename K::Local>& locals,
                            std::integer_sequence<int, kPhase...>) {
  shared.BeginBlock();
  MakeUndefined(locals);
  absl::Status status;
  static_cast<void>(
      ((status = RunPhaseInTurn<kPhase>(kernel, block, backwards, shared, locals)).ok() && ...));
  return status;
}

/// Runs the blocks, and the threads of a block, first to last or last to first. A thread sees no
/// write to Shared by another thread of its phase; two writers of a byte are an Internal error.
template <typename K>
absl::Status RunInTurn(const K& kernel, bool backwards) {
  SharedCopies shared(sizeof(typename K::Shared));
  std::vector<typename K::Local> locals(static_cast<size_t>(K::kThreads));
  const int64_t blocks = kernel.Blocks();
  for (int64_t i = 0; i < blocks; ++i) {
    PTQWATCH_RETURN_IF_ERROR(RunBlockInTurn(kernel, backwards ? blocks - 1 - i : i, backwards,
                                            shared, locals,
                                            std::make_integer_sequence<int, K::kPhases>()));
  }
  return absl::OkStatus();
}

/// Two members that share a kernel's blocks, some of them at a time.
template <typename K>
struct Team {
  static constexpr size_t kTogether = 16;
  static constexpr int kMembers = 2;
  struct Block {
    alignas(16) typename K::Shared shared;  // as in launch.cuh
    std::vector<typename K::Local> locals =
        std::vector<typename K::Local>(static_cast<size_t>(K::kThreads));
  };

  std::vector<Block> blocks = std::vector<Block>(kTogether);
  std::barrier<> barrier{kMembers};
};

template <typename K, int... kPhase>
void RunBlockUnchecked(const K& kernel, int64_t block, bool backwards, typename K::Shared& shared,
                       std::vector<typename K::Local>& locals,
                       std::integer_sequence<int, kPhase...>) {
  std::memset(static_cast<void*>(&shared), kUndefined, sizeof(shared));
  MakeUndefined(locals);
  const auto thread = [&](int i) { return backwards ? K::kThreads - 1 - i : i; };
  const auto run_phase = [&]<int kOne>(std::integral_constant<int, kOne>) {
    for (int i = 0; i < K::kThreads; ++i) {
      kernel.template Run<kOne>(internal::Place{.block = block, .thread = thread(i)}, shared,
                                locals[static_cast<size_t>(thread(i))]);
    }
  };
  (run_phase(std::integral_constant<int, kPhase>()), ...);
}

/// As RunInTurn, but threads share Shared, which takes a tenth of the time.
template <typename K>
void RunUnchecked(const K& kernel, bool backwards) {
  typename Team<K>::Block memory;
  const int64_t blocks = kernel.Blocks();
  for (int64_t i = 0; i < blocks; ++i) {
    RunBlockUnchecked(kernel, backwards ? blocks - 1 - i : i, backwards, memory.shared,
                      memory.locals, std::make_integer_sequence<int, K::kPhases>());
  }
}

template <typename K>
class TeamMember {
 public:
  TeamMember(const K& kernel, Team<K>& team, int number, uint32_t seed)
      : kernel_(kernel), team_(team), number_(number), random_(seed) {}

  /// Both members are given the same blocks and seed.
  void Run(const std::vector<int64_t>& blocks) {
    for (size_t first = 0; first < blocks.size(); first += Team<K>::kTogether) {
      Begin(std::min(blocks.size() - first, Team<K>::kTogether));
      RunPhases(blocks.data() + first, std::make_integer_sequence<int, K::kPhases>());
    }
  }

 private:
  // Both members deal out the threads of `count` blocks alike.
  void Begin(size_t count) {
    items_.clear();
    for (size_t slot = 0; slot < count; ++slot) {
      for (int thread = 0; thread < K::kThreads; ++thread) items_.push_back({slot, thread});
      if (number_ == 0) {
        typename Team<K>::Block& block = team_.blocks[slot];
        std::memset(static_cast<void*>(&block.shared), kUndefined, sizeof(block.shared));
        MakeUndefined(block.locals);
      }
    }
    std::shuffle(items_.begin(), items_.end(), random_);
    team_.barrier.arrive_and_wait();
  }

  template <int... kPhase>
  void RunPhases(const int64_t* blocks, std::integer_sequence<int, kPhase...>) {
    (RunPhase<kPhase>(blocks), ...);
  }

  template <int kPhase>
  void RunPhase(const int64_t* blocks) {
    for (size_t i = static_cast<size_t>(number_); i < items_.size(); i += Team<K>::kMembers) {
      const auto [slot, thread] = items_[i];
      typename Team<K>::Block& block = team_.blocks[slot];
      kernel_.template Run<kPhase>(internal::Place{.block = blocks[slot], .thread = thread},
                                   block.shared, block.locals[static_cast<size_t>(thread)]);
    }
    team_.barrier.arrive_and_wait();
  }

  const K& kernel_;
  Team<K>& team_;
  const int number_;
  std::minstd_rand random_;
  std::vector<std::pair<size_t, int>> items_;  // of the blocks at hand: which block, which thread
};

/// Runs the blocks on two teams of two real threads, which nothing orders but the barriers between
/// the phases of a team's blocks. ThreadSanitizer then sees races within a block and between
/// blocks, in Shared and in a device's memory.
template <typename K>
void RunConcurrently(const K& kernel, uint32_t seed) {
  constexpr size_t kTeams = 2;
  std::vector<int64_t> blocks(static_cast<size_t>(kernel.Blocks()));
  std::iota(blocks.begin(), blocks.end(), int64_t{0});
  std::shuffle(blocks.begin(), blocks.end(), std::minstd_rand(seed));
  const auto half = blocks.begin() + static_cast<int64_t>(blocks.size() / kTeams);
  const std::vector<int64_t> parts[kTeams] = {{blocks.begin(), half}, {half, blocks.end()}};
  std::array<Team<K>, kTeams> teams;
  std::vector<std::thread> threads;
  for (size_t team = 0; team < kTeams; ++team) {
    if (parts[team].empty()) continue;
    for (int number = 0; number < Team<K>::kMembers; ++number) {
      threads.emplace_back([&kernel, &teams, &parts, team, number, seed] {
        TeamMember<K>(kernel, teams[team], number, seed).Run(parts[team]);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_KERNEL_LOOPS_H_
