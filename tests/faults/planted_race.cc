// Contains, by its argument, a race of a kernel that ThreadSanitizer must see in HostDevice's
// threads:
//   block   two threads of a block write a number in the same phase
//   shared  a thread reads from Shared what another writes in the same phase
//   grid    a block reads in its second phase what another wrote in its first
#include <cstdio>
#include <string_view>
#include <vector>

#include "support/kernel_loops.h"

namespace {

using ptqwatch::internal::Nothing;
using ptqwatch::internal::Place;

constexpr int64_t kBlocks = 64;

template <int kRace>
struct Racing {
  static constexpr int kThreads = 32;
  static constexpr int kPhases = 2;
  struct Shared {
    int number[kThreads];
  };
  using Local = Nothing;

  int* numbers = nullptr;  // [kBlocks, kThreads]

  int64_t Blocks() const { return kBlocks; }

  template <int kPhase>
  void Run(Place at, Shared& shared, Local&) const {
    const int neighbour = (at.thread + 1) % kThreads;
    int* mine = numbers + at.block * kThreads;
    if constexpr (kPhase == 0) {
      shared.number[at.thread] = at.thread;
      mine[kRace == 0 ? at.thread / 2 : at.thread] = at.thread;
      if (kRace == 1) mine[at.thread] = shared.number[neighbour];
    } else {
      const int64_t other = kRace == 2 ? (at.block + 1) % kBlocks : at.block;
      shared.number[at.thread] += numbers[other * kThreads + neighbour];
    }
  }
};

template <int kRace>
void Plant() {
  std::vector<int> numbers(static_cast<size_t>(kBlocks) * 32);
  ptqwatch::testing::RunConcurrently(Racing<kRace>{.numbers = numbers.data()}, 1);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view race = count > 1 ? arguments[1] : "";
  if (race == "block") Plant<0>();
  if (race == "shared") Plant<1>();
  if (race == "grid") Plant<2>();
  if (race == "none") Plant<3>();
  std::puts("done");
}
