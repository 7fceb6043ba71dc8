#include "ptqwatch/module_subject.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

std::vector<NamedTensor> TensorsOf(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.push_back({item.key(), item.value(), true});
  }
  for (const auto& item : module.named_buffers()) {
    tensors.push_back({item.key(), item.value(), false});
  }
  return tensors;
}

class ModuleSubject final : public Subject {
 public:
  ModuleSubject(std::shared_ptr<const torch::nn::Module> live,
                std::function<std::shared_ptr<torch::nn::Module>()> build,
                std::function<LossValues(const Batch&)> losses, std::vector<Batch> probe,
                std::vector<Batch> calibration, std::vector<Batch> curvature,
                std::function<std::optional<OptimizerView>()> optimizer,
                std::function<std::vector<NamedTensor>()> parts,
                std::function<void(const CooldownStep&)> train_step)
      : live_(std::move(live)),
        build_(std::move(build)),
        losses_(std::move(losses)),
        probe_(std::move(probe)),
        calibration_(std::move(calibration)),
        curvature_(std::move(curvature)),
        optimizer_(std::move(optimizer)),
        parts_(std::move(parts)),
        train_step_(std::move(train_step)) {
    if (calibration_.empty()) calibration_ = probe_;
  }

  std::vector<NamedTensor> LiveTensors() const override {
    if (live_ == nullptr) return {};
    if (parts_) return parts_();
    return TensorsOf(*live_);
  }
  std::optional<OptimizerView> Optimizer() const override {
    return optimizer_ ? optimizer_() : std::nullopt;
  }

  absl::Status BuildReplica() override {
    if (replica_ != nullptr) return absl::OkStatus();
    if (live_ == nullptr) return absl::InvalidArgumentError("the live model is empty");
    if (!build_) return absl::InvalidArgumentError("ModuleSubjectOptions.replica is not set");
    if (!losses_) return absl::InvalidArgumentError("ModuleSubjectOptions.losses is not set");
    replica_ = build_();
    if (replica_ == nullptr) {
      return absl::FailedPreconditionError("ModuleSubjectOptions.replica returned an empty model");
    }
    if (replica_.get() == live_.get()) {
      return absl::FailedPreconditionError(
          "ModuleSubjectOptions.replica returned the live model itself");
    }
    replica_->eval();
    return absl::OkStatus();
  }

  std::vector<NamedTensor> ReplicaTensors() const override { return TensorsOf(*replica_); }
  LossValues ReplicaLosses(const Batch& batch) override { return losses_(batch); }
  std::string ReplicaInTraining() const override {
    const std::vector<std::shared_ptr<torch::nn::Module>> modules = replica_->modules();
    if (std::none_of(modules.begin(), modules.end(),
                     [](const auto& module) { return module->is_training(); })) {
      return {};
    }
    for (const auto& item : replica_->named_modules()) {
      if (!item.value()->is_training()) continue;
      return item.key().empty() ? StrCat("the replica (", item.value()->name(), ")")
                                : StrCat("'", item.key(), "' (", item.value()->name(), ")");
    }
    return {};
  }
  bool CanTrainReplica() const override { return train_step_ != nullptr; }
  void TrainReplica(const CooldownStep& step) override {
    replica_->train();
    const absl::Cleanup evaluate = [this] { replica_->eval(); };
    train_step_(step);
  }
  const std::vector<Batch>& probe() const override { return probe_; }
  const std::vector<Batch>& calibration() const override { return calibration_; }
  const std::vector<Batch>& curvature() const override { return curvature_; }

 private:
  const std::shared_ptr<const torch::nn::Module> live_;
  const std::function<std::shared_ptr<torch::nn::Module>()> build_;
  const std::function<LossValues(const Batch&)> losses_;
  std::vector<Batch> probe_;
  std::vector<Batch> calibration_;
  std::vector<Batch> curvature_;
  const std::function<std::optional<OptimizerView>()> optimizer_;
  const std::function<std::vector<NamedTensor>()> parts_;
  const std::function<void(const CooldownStep&)> train_step_;
  std::shared_ptr<torch::nn::Module> replica_;
};

}  // namespace

std::unique_ptr<Subject> MakeErasedModuleSubject(
    std::shared_ptr<const torch::nn::Module> live,
    std::function<std::shared_ptr<torch::nn::Module>()> replica,
    std::function<LossValues(const Batch&)> losses, std::vector<Batch> probe,
    std::vector<Batch> calibration, std::vector<Batch> curvature,
    std::function<std::optional<OptimizerView>()> optimizer,
    std::function<std::vector<NamedTensor>()> parts,
    std::function<void(const CooldownStep&)> train_step) {
  return std::make_unique<ModuleSubject>(std::move(live), std::move(replica), std::move(losses),
                                         std::move(probe), std::move(calibration),
                                         std::move(curvature), std::move(optimizer),
                                         std::move(parts), std::move(train_step));
}

}  // namespace ptqwatch::internal
