// Faults in kernels, and how the loops of HostDevice show them.
#include "support/kernel_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ptqwatch::testing {
namespace kernel_loops_test {

using internal::Nothing;
using internal::Place;

constexpr int kThreads = 32;

struct SharedNumbers {
  float number[kThreads];
};

// In the second phase a thread hands on its neighbour's number, at a distance.
struct PassAround {
  static constexpr int kThreads = kernel_loops_test::kThreads;
  static constexpr int kPhases = 2;
  using Shared = SharedNumbers;
  struct Local {
    float mine;
  };

  int64_t distance = 1;
  int writers = 1;          // of each number
  bool same_phase = false;  // reads what the neighbour writes in the same phase
  float* out = nullptr;     // [blocks, kThreads]

  int64_t Blocks() const { return 3; }

  template <int kPhase>
  void Run(Place at, Shared& shared, Local& local) const {
    const int neighbour = static_cast<int>((at.thread + distance) % kThreads);
    if constexpr (kPhase == 0) {
      local.mine = static_cast<float>(at.thread);
      shared.number[at.thread / writers * writers] = local.mine;
      if (same_phase) local.mine = shared.number[neighbour];
    } else {
      out[at.block * kThreads + at.thread] = same_phase ? local.mine : shared.number[neighbour];
    }
  }
};

TEST(KernelLoops, RunEveryThreadOfEveryBlockPhaseByPhase) {
  std::vector<float> out(3 * kThreads, -1);
  const PassAround kernel{.distance = 5, .out = out.data()};
  for (const int order : {0, 1, 2}) {
    std::fill(out.begin(), out.end(), -1.0f);
    if (order == 2) {
      RunConcurrently(kernel, 7);
    } else {
      ASSERT_TRUE(RunInTurn(kernel, order == 1).ok());
    }
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], static_cast<float>((i % kThreads + 5) % kThreads)) << order;
    }
  }
}

TEST(KernelLoops, TwoWritersOfAByteAreAnError) {
  std::vector<float> out(3 * kThreads);
  const PassAround kernel{.writers = 2, .out = out.data()};
  EXPECT_EQ(RunInTurn(kernel, false),
            absl::InternalError(
                "PassAround, phase 0, block 0: threads 0 and 1 both write byte 0 of Shared"));
  EXPECT_EQ(RunInTurn(kernel, true).code(), absl::StatusCode::kInternal);
}

// A neighbour's write is seen neither by a thread that runs later nor by one that ran before.
TEST(KernelLoops, AThreadSeesNoWriteOfItsOwnPhase) {
  for (const bool backwards : {false, true}) {
    std::vector<float> out(3 * kThreads);
    ASSERT_TRUE(RunInTurn(PassAround{.same_phase = true, .out = out.data()}, backwards).ok());
    for (const float number : out) EXPECT_TRUE(std::isnan(number)) << number;
  }
}

}  // namespace kernel_loops_test
}  // namespace ptqwatch::testing
