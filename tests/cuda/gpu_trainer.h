#ifndef PTQWATCH_TESTS_CUDA_GPU_TRAINER_H_
#define PTQWATCH_TESTS_CUDA_GPU_TRAINER_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "support/recording_exporter.h"
#include "torch/torch.h"

namespace ptqwatch::testing {

using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

inline constexpr int64_t kInputs = 64;
inline constexpr int64_t kClasses = 10;

inline Sequential MakeNet() {
  return Sequential(Linear(kInputs, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, kClasses));
}

inline at::Tensor CrossEntropy(Sequential& net, const Batch& batch) {
  return at::cross_entropy_loss(net->forward(batch[0]), batch[1], {}, at::Reduction::None);
}

// Before the first model is made.
struct Seeded {
  Seeded() { torch::manual_seed(1); }
};

// A trainer on the GPU whose data and weights depend on nothing but the seed.
struct GpuTrainer : Seeded {
  GpuTrainer() {
    model->to(torch::kCUDA);
    teacher->to(torch::kCUDA);
    optimizer = std::make_unique<torch::optim::AdamW>(model->parameters(), 1e-3);
    probe = {Draw(2048)};
  }
  Batch Draw(int64_t count) const {
    const at::Tensor x = torch::randn({count, kInputs}, torch::kCUDA);
    return {x, teacher.ptr()->as<torch::nn::SequentialImpl>()->forward(x).argmax(1).detach()};
  }
  void Watch(MonitorOptions options,
             std::function<LossValues(Sequential&, const Batch&)> losses = CrossEntropy) {
    options.on_failure = OnFailure::kError;
    options.duty_cycle = 1;
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<RecordingExporter>(recording));
    ModuleSubjectOptions<Sequential> subject;
    subject.replica = MakeNet;
    subject.losses = std::move(losses);
    subject.probe = probe;
    auto created = Monitor::Create(MakeModuleSubject(model, std::move(subject)), options,
                                   std::move(exporters));
    ASSERT_TRUE(created.ok()) << created.status();
    monitor = *std::move(created);
  }
  void Step(int64_t step) {
    optimizer->zero_grad();
    CrossEntropy(model, Draw(64)).mean().backward();
    if (monitor) monitor->BeforeUpdate();
    optimizer->step();
    if (monitor) monitor->OnStep({.step = step, .learning_rate = 1e-3});
  }
  std::vector<at::Tensor> Weights() const {
    std::vector<at::Tensor> weights;
    for (const at::Tensor& weight : model->parameters()) weights.push_back(weight.detach().cpu());
    return weights;
  }

  Sequential model = MakeNet();
  Sequential teacher = MakeNet();
  std::unique_ptr<torch::optim::AdamW> optimizer;
  std::vector<Batch> probe;
  std::shared_ptr<Recording> recording = std::make_shared<Recording>();
  std::unique_ptr<Monitor> monitor;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_CUDA_GPU_TRAINER_H_
