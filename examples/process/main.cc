// A monitor that measures in a process of its own: this program again.
#include <iostream>

#include "ptqwatch/measure_for_trainer.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "torch/torch.h"

using torch::nn::Linear, torch::nn::ReLU, torch::nn::Sequential;

Sequential MakeNet() { return Sequential(Linear(64, 128), ReLU(), Linear(128, 10)); }

at::Tensor Losses(Sequential& net, const ptqwatch::Batch& batch) {
  return at::cross_entropy_loss(net->forward(batch[0]), batch[1], {}, at::Reduction::None);
}

int main() {
  torch::manual_seed(0);  // both processes need the same data
  at::set_num_threads(1);
  Sequential teacher = MakeNet(), model = MakeNet();
  const auto draw = [&](int64_t count) -> ptqwatch::Batch {
    const at::Tensor x = torch::randn({count, 64});
    return {x, teacher->forward(x).argmax(1)};
  };
  auto subject = ptqwatch::MakeModuleSubject(
      model, {.replica = MakeNet, .losses = Losses, .probe = {draw(4096)}});
  const ptqwatch::MonitorOptions options{
      .schedule = {.every = 200}, .run_dir = "runs/process", .process = ptqwatch::ProcessOptions()};
  if (ptqwatch::IsMeasuringProcess()) {
    return ptqwatch::MeasureForTrainer(std::move(subject), options);
  }

  auto monitor = *ptqwatch::Monitor::Create(std::move(subject), options);
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  for (int64_t step = 1; step <= 2000; ++step) {
    optimizer.zero_grad();
    Losses(model, draw(64)).mean().backward();
    optimizer.step();
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
  }
  monitor->Finish(std::chrono::minutes(1)).IgnoreError();  // measures the last step
  if (auto newest = monitor->latest()) std::cout << newest->verdict.summary << "\n";
}
