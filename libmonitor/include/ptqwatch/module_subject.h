#ifndef PTQWATCH_MODULE_SUBJECT_H_
#define PTQWATCH_MODULE_SUBJECT_H_

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ptqwatch/subject.h"
#include "torch/nn/module.h"

namespace ptqwatch {

/// How a torch::nn::Module is tested. `Model` is the shared_ptr or ModuleHolder that the trainer
/// has.
template <typename Model>
struct ModuleSubjectOptions {
  /// Builds a second model of the same architecture; its weights are overwritten. Called once,
  /// inside Monitor::Create, with the default random generators saved and restored around it.
  std::function<Model()> replica = nullptr;
  /// Per-token, per-sequence or mean losses of a batch, in nats. Must not draw random numbers, and
  /// must own what it captures.
  std::function<LossValues(Model&, const Batch&)> losses = nullptr;
  std::vector<Batch> probe = {};
  /// Empty: the probe batches.
  std::vector<Batch> calibration = {};
  /// Empty: the first 64 sequences of the probe batches.
  std::vector<Batch> curvature = {};
  /// What the optimizer does, for the distance to the edge of stability: for those of LibTorch
  /// `[&] { return ptqwatch::ViewOf(optimizer, *model); }` (torch_optimizer.h). Called inside
  /// Create, OnStep and Finish where a snapshot is taken, on the thread that calls them. Without it
  /// that distance is not measured.
  std::function<std::optional<OptimizerView>()> optimizer = nullptr;
};

namespace internal {
std::unique_ptr<Subject> MakeErasedModuleSubject(
    std::shared_ptr<const torch::nn::Module> live,
    std::function<std::shared_ptr<torch::nn::Module>()> replica,
    std::function<LossValues(const Batch&)> losses, std::vector<Batch> probe,
    std::vector<Batch> calibration, std::vector<Batch> curvature,
    std::function<std::optional<OptimizerView>()> optimizer);

template <typename Model>
std::shared_ptr<torch::nn::Module> AsModule(const Model& model) {
  if constexpr (std::is_convertible_v<Model, std::shared_ptr<torch::nn::Module>>) {
    return model;
  } else {
    return model.is_empty() ? nullptr : std::shared_ptr<torch::nn::Module>(model.ptr());
  }
}
}  // namespace internal

/// The Subject of a LibTorch module. The live model is kept alive and only ever read, inside OnStep
/// and Finish. Never fails: what is missing or does not fit is reported by Monitor::Create.
template <typename Model>
std::unique_ptr<Subject> MakeModuleSubject(
    const Model& live, ModuleSubjectOptions<std::type_identity_t<Model>> options) {
  auto replica = std::make_shared<Model>(nullptr);
  std::function<std::shared_ptr<torch::nn::Module>()> build;
  if (options.replica) {
    build = [replica, make = std::move(options.replica)] {
      *replica = make();
      return internal::AsModule(*replica);
    };
  }
  std::function<LossValues(const Batch&)> losses;
  if (options.losses) {
    losses = [replica, evaluate = std::move(options.losses)](const Batch& batch) {
      return evaluate(*replica, batch);
    };
  }
  return internal::MakeErasedModuleSubject(
      internal::AsModule(live), std::move(build), std::move(losses), std::move(options.probe),
      std::move(options.calibration), std::move(options.curvature), std::move(options.optimizer));
}

}  // namespace ptqwatch

#endif  // PTQWATCH_MODULE_SUBJECT_H_
