#ifndef PTQWATCH_RANKS_RANK_GROUP_H_
#define PTQWATCH_RANKS_RANK_GROUP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class FileStore;
}

namespace ptqwatch::examples {

/// Thrown by RankGroup when it is told to stop.
struct Stopped {};

/// The ranks of a run. They exchange tensors (float32, CPU) through files that all of them can
/// open, with the FileStore of LibTorch's c10d, which works without MPI, NCCL or Gloo. For small
/// models: an exchange takes milliseconds, and each rank reads what all the others have sent. An
/// exchange waits for the other ranks. It throws UsageError if an earlier launch has used the
/// store, Stopped if told to stop, and std::runtime_error, naming the rank, if another rank exceeds
/// the timeout. Not thread-safe.
class RankGroup {
 public:
  struct Options {
    std::string store;  ///< the files are named STORE.0, STORE.1, ...; none may exist yet
    int64_t rank = 0;
    int64_t ranks = 1;
    std::chrono::milliseconds timeout{300'000};            ///< how long to wait for another rank
    std::function<bool()> stopped = [] { return false; };  ///< asked while waiting
  };
  explicit RankGroup(Options options);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// Replaces the gradients of the parameters by their means over all ranks, which are the same
  /// bits on each rank.
  void AverageGradients(const std::vector<at::Tensor>& parameters);
  /// Copies `own` of each rank to that rank's `destinations`, which have the same sizes.
  void Gather(const std::vector<at::Tensor>& own,
              const std::vector<std::vector<at::Tensor>>& destinations);

 private:
  void OpenStore();
  // Calls `take` with what each rank sent, in the order of the ranks. `count(rank)` elements.
  void Exchange(const at::Tensor& own, absl::FunctionRef<int64_t(int64_t rank)> count,
                absl::FunctionRef<void(int64_t rank, const at::Tensor& flat)> take);
  at::Tensor Receive(int64_t rank, int64_t count);

  const Options options_;
  c10::intrusive_ptr<c10d::FileStore> store_;
  int64_t round_ = 0;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_RANKS_RANK_GROUP_H_
