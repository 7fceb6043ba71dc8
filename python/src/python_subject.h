#ifndef PTQWATCH_PYTHON_PYTHON_SUBJECT_H_
#define PTQWATCH_PYTHON_PYTHON_SUBJECT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ptqwatch/subject.h"
#include "python_call.h"

namespace ptqwatch::python {

/// Gives up the interpreter's lock inside a step call, from the moment the live tensors are listed
/// until the call ends: while the weights are copied. Without a due snapshot the lock stays with
/// the caller.
class StepLock {
 public:
  StepLock() { current_ = this; }
  ~StepLock() {
    current_ = nullptr;
    if (released_ != nullptr) PyEval_RestoreThread(released_);
  }
  StepLock(const StepLock&) = delete;
  StepLock& operator=(const StepLock&) = delete;
  /// Does nothing outside of a step call.
  static void Release() noexcept {
    if (current_ != nullptr && current_->released_ == nullptr) {
      current_->released_ = PyEval_SaveThread();
    }
  }

 private:
  static thread_local StepLock* current_;
  PyThreadState* released_ = nullptr;
};

/// The state of the losses closure, shared by monitor threads and their owner. Thread-safe.
class LossesCall {
 public:
  /// Raises SystemExit inside the losses closure, if it runs. It ends at its next Python
  /// instruction.
  void Interrupt();

 private:
  friend class PythonSubject;
  unsigned long thread_ = 0;  // of the closure; 0: none. Guarded by the interpreter's lock.
};

/// A subject whose model is described by a Python object, the adapter (class ModelAdapter in
/// ptqwatch/_subject.py). Its methods are called with the interpreter's lock, which is free
/// otherwise:
///
///   live() -> [(name, tensor, is_parameter)]           as Subject::LiveTensors; of a model that is
///                                                      sharded, with global_shape and offset
///   build() -> [(name, tensor, is_parameter)]          makes the replica and lists its tensors
///   losses([tensor]) -> (values, weights, logits, correct, training)
///                                                      the last four may be None; `training` is
///                                                      ReplicaInTraining
///   optimizer() -> None or a dict of OptimizerView     as Subject::Optimizer
///   train(index, steps, learning_rate, batch)          as Subject::TrainReplica, if `can_train`
///
/// An exception of any type becomes std::runtime_error, as Call has it. The attribute `refusal`, if
/// not empty, says why the model cannot be watched.
class PythonSubject final : public Subject {
 public:
  /// REQUIRES: the interpreter's lock.
  PythonSubject(const pybind11::object& adapter, Batches probe, Batches calibration,
                Batches curvature);

  std::vector<NamedTensor> LiveTensors() const override;
  std::optional<OptimizerView> Optimizer() const override;
  absl::Status BuildReplica() override;
  std::vector<NamedTensor> ReplicaTensors() const override { return replica_; }
  LossValues ReplicaLosses(const Batch& batch) override;
  std::string ReplicaInTraining() const override { return training_; }
  bool CanTrainReplica() const override { return can_train_; }
  void TrainReplica(const CooldownStep& step) override;
  const std::vector<Batch>& probe() const override { return probe_; }
  const std::vector<Batch>& calibration() const override { return calibration_; }
  const std::vector<Batch>& curvature() const override { return curvature_; }

  std::shared_ptr<LossesCall> losses_call() const { return losses_call_; }

 private:
  const SharedObject adapter_;
  const std::string refusal_;
  const bool can_train_;
  const Batches probe_;
  const Batches calibration_;
  const Batches curvature_;
  const std::shared_ptr<LossesCall> losses_call_ = std::make_shared<LossesCall>();
  std::vector<NamedTensor> replica_;
  std::string training_;
};

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_PYTHON_SUBJECT_H_
