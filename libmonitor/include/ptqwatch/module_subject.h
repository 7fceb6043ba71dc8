#ifndef PTQWATCH_MODULE_SUBJECT_H_
#define PTQWATCH_MODULE_SUBJECT_H_

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ptqwatch/config.h"
#include "ptqwatch/subject.h"
#include "torch/nn/module.h"

namespace ptqwatch {

/// Describes a torch::nn::Module. `Model` is the trainer's shared_ptr or ModuleHolder.
template <typename Model>
struct ModuleSubjectOptions {
  // The subject shares the model with the trainer, so it needs a handle that can be copied.
  static_assert(!std::is_base_of_v<torch::nn::Module, Model> && !std::is_pointer_v<Model> &&
                    std::is_copy_constructible_v<Model>,
                "MakeModuleSubject needs the model as a std::shared_ptr<Net> or as a ModuleHolder "
                "(TORCH_MODULE): write `auto model = std::make_shared<Net>()`, not `Net model`");

  /// Required. Builds a second model of the same architecture; its weights are overwritten. Called
  /// once, inside Monitor::Create or the offline call. It draws from copies of the default random
  /// generators, and seeding them is undone.
  std::function<Model()> replica = nullptr;
  /// Required. Per-token, per-sequence or mean losses of a batch, in nats. The model is in
  /// evaluation mode and must stay in it. The function must not write to its parameters and
  /// buffers, must draw random numbers only from a generator of its own, and must own what it
  /// captures.
  std::function<LossValues(Model&, const Batch&)> losses = nullptr;
  /// Required. Held-out data for comparing losses.
  Batches probe = {};
  /// Empty: the probe batches.
  Batches calibration = {};
  /// Empty: the first 64 sequences of the probe batches, or more, until they have 1000 losses.
  Batches curvature = {};
  /// The optimizer's rule and state; needed to measure the distance to the edge of stability. For
  /// LibTorch's optimizers: `[&] { return ptqwatch::ViewOf(optimizer, *model); }`
  /// (torch_optimizer.h). Called on the caller's thread, inside Monitor::Create and inside each
  /// OnStep and Finish that takes a snapshot.
  std::function<std::optional<OptimizerView>()> optimizer = nullptr;
  /// If training is sharded: the parts of the parameters and buffers that this rank has, under the
  /// module's names, with NamedTensor::global_shape. They are watched instead of the module's own.
  /// Called as `optimizer`.
  std::function<std::vector<NamedTensor>()> parts = nullptr;
  /// For shadow cooldowns (MonitorOptions::cooldown): makes one optimizer step of the replica, as
  /// the trainer would, on a batch from the trainer's own source. At `step.index` 0 it makes a new
  /// optimizer. Runs on the monitor thread during training, with the replica in training mode. Must
  /// own what it captures, and must not share mutable state with the training loop.
  /// @code
  ///   .train_step = [optimizer = std::shared_ptr<torch::optim::AdamW>(), data](
  ///                     Net& net, const ptqwatch::CooldownStep& step) mutable {
  ///     if (step.index == 0) optimizer = std::make_shared<torch::optim::AdamW>(net->parameters());
  ///     SetLearningRate(*optimizer, step.learning_rate);
  ///     std::mt19937_64 generator(static_cast<uint64_t>(step.batch));
  ///     const ptqwatch::Batch batch = data->Draw(generator);
  ///     optimizer->zero_grad();
  ///     Loss(net, batch).backward();
  ///     optimizer->step();
  ///   },
  /// @endcode
  std::function<void(Model&, const CooldownStep&)> train_step = nullptr;
};

namespace internal {
PTQWATCH_EXPORT std::unique_ptr<Subject> MakeErasedModuleSubject(
    std::shared_ptr<const torch::nn::Module> live,
    std::function<std::shared_ptr<torch::nn::Module>()> replica,
    std::function<LossValues(const Batch&)> losses, std::vector<Batch> probe,
    std::vector<Batch> calibration, std::vector<Batch> curvature,
    std::function<std::optional<OptimizerView>()> optimizer,
    std::function<std::vector<NamedTensor>()> parts,
    std::function<void(const CooldownStep&)> train_step);

template <typename Model>
std::shared_ptr<torch::nn::Module> AsModule(const Model& model) {
  if constexpr (std::is_convertible_v<Model, std::shared_ptr<torch::nn::Module>>) {
    return model;
  } else {
    return model.is_empty() ? nullptr : std::shared_ptr<torch::nn::Module>(model.ptr());
  }
}
}  // namespace internal

/// Makes a Subject from a LibTorch module. Keeps the live model alive and only reads it. A monitor
/// reads it inside Create, OnStep and Finish, on the caller's thread. Never fails: Monitor::Create
/// and the offline functions report missing and unsuitable options.
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
  std::function<void(const CooldownStep&)> train_step;
  if (options.train_step) {
    train_step = [replica, train = std::move(options.train_step)](const CooldownStep& step) {
      train(*replica, step);
    };
  }
  return internal::MakeErasedModuleSubject(
      internal::AsModule(live), std::move(build), std::move(losses), std::move(options.probe),
      std::move(options.calibration), std::move(options.curvature), std::move(options.optimizer),
      std::move(options.parts), std::move(train_step));
}

}  // namespace ptqwatch

#endif  // PTQWATCH_MODULE_SUBJECT_H_
