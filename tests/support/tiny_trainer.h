#ifndef PTQWATCH_TESTS_SUPPORT_TINY_TRAINER_H_
#define PTQWATCH_TESTS_SUPPORT_TINY_TRAINER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ptqwatch/subject.h"

namespace ptqwatch::testing {

/// A mistake that a subject makes.
enum class Fault {
  kNone,
  kReplicaThrows,
  kReplicaOtherShape,
  kReplicaUntied,
  kReplicaIsLive,
  kReplicaEmpty,
  kLossesThrow,
  kLossesDrawRandom,
  kLossesWrongShape,
  kLossesUseLiveModel,
  kLossesNotDeterministic,
  kLossesTrainAPart,
  kLossesSum,
  kLossesNotFinite,
  kLossesDetached,
  kLossesMissTensor,
  kBadLabel,
  kNoProbe,
  kNoLosses,
  kNoTrainStep,
};

/// A token model of 3 blocks with an embedding tied to its head, norms, dropout and a buffer,
/// trained by AdamW on a fixed random sequence. All randomness comes from the default generator, as
/// in most trainers. Hides torch/torch.h from the tests.
class TinyTrainer {
 public:
  explicit TinyTrainer(uint64_t seed = 1, int width = 16);
  ~TinyTrainer();

  /// Takes one optimizer step and returns its loss.
  double Step();
  /// The raw bytes of all parameters and buffers.
  std::string Bytes() const;
  std::vector<at::Tensor> CloneTensors() const;
  /// `before` runs at the start of each training step of a replica; it may throw or wait. Call this
  /// before MakeSubject.
  void OnTrainStep(std::function<void(const CooldownStep&)> before);

  /// Writes NaN into one weight of block 1.
  void Poison();
  /// Replaces the head bias by a tensor of another shape.
  void ReplaceParameter();

  /// The trainer's optimizer as the subject passes it.
  OptimizerView Optimizer() const;

  /// `before_losses` runs at the start of each call of the losses closure, on any thread; it may
  /// throw or wait.
  std::unique_ptr<Subject> MakeSubject(Fault fault = Fault::kNone,
                                       std::function<void()> before_losses = nullptr) const;
  /// The same for a trainer that says of each tensor that it is its part of a sharded one.
  std::unique_ptr<Subject> MakeShardedSubject() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_TINY_TRAINER_H_
