#include <iostream>

#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "torch/torch.h"

using torch::nn::Linear, torch::nn::ReLU, torch::nn::Sequential;

int main() {
  torch::manual_seed(0);
  at::set_num_threads(1);  // leaves a core to the monitor
  const auto make_net = [] { return Sequential(Linear(64, 128), ReLU(), Linear(128, 10)); };
  Sequential teacher = make_net(), model = make_net();
  const auto draw = [&](int64_t count) -> ptqwatch::Batch {
    const at::Tensor x = torch::randn({count, 64});
    return {x, teacher->forward(x).argmax(1)};
  };
  const auto losses = [](Sequential& net, const ptqwatch::Batch& batch) {
    return at::cross_entropy_loss(net->forward(batch[0]), batch[1], {}, at::Reduction::None);
  };

  auto subject = ptqwatch::MakeModuleSubject(
      model, {.replica = make_net, .losses = losses, .probe = {draw(4096)}});
  auto monitor = *ptqwatch::Monitor::Create(
      std::move(subject), {.schedule = {.every = 200}, .run_dir = "runs/minimal"});

  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  for (int64_t step = 1; step <= 2000; ++step) {
    optimizer.zero_grad();
    losses(model, draw(64)).mean().backward();
    optimizer.step();
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
  }
  monitor->Finish(std::chrono::minutes(1)).IgnoreError();  // measures the last step
  if (auto newest = monitor->latest()) std::cout << newest->verdict.summary << "\n";
}
