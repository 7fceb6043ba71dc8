// The shortest trainer with a monitor: a network learns the classes that another one gives to
// random points.

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "final_slice.h"
#include "monitor_setup.h"
#include "ptqwatch/grpc_exporter.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/prometheus_exporter.h"
#include "torch/torch.h"
#include "weights_hash.h"

namespace nn = torch::nn;
namespace examples = ptqwatch::examples;

int main(int argc, char** argv) {
  const examples::TrainerFlags flags = examples::ParseTrainerFlagsOrExit(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  at::set_num_threads(flags.threads);
  torch::manual_seed(flags.seed);
  const auto make_net = [] {
    return nn::Sequential(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(),
                          nn::Linear(128, 10));
  };
  nn::Sequential teacher = make_net();
  nn::Sequential model = make_net();
  const auto draw_batch = [&](int64_t size) -> ptqwatch::Batch {
    const at::NoGradGuard no_grad;
    const at::Tensor points = torch::randn({size, 64});
    return {points, teacher->forward(points).argmax(1)};
  };
  const auto losses = [](nn::Sequential& net, const ptqwatch::Batch& batch) {
    return at::cross_entropy_loss(net->forward(batch[0]), batch[1], {}, at::Reduction::None);
  };
  const std::vector<ptqwatch::Batch> probe = {draw_batch(4096)}, calibration = {draw_batch(1024)};
  const int64_t steps = 2000;

  const auto slice = examples::ValueOrExit("--slice", examples::FinalSlice::Plan(flags, steps));
  std::unique_ptr<ptqwatch::Monitor> monitor;
  if (flags.monitor) {
    auto http = examples::ValueOrExit(
        "--http", ptqwatch::PrometheusExporter::Create({.address = flags.http}));
    std::printf("metrics http://%s/metrics\n", http->address().c_str());
    std::vector<std::unique_ptr<ptqwatch::Exporter>> exporters;
    exporters.push_back(std::move(http));
    if (flags.grpc != "off") {
      auto grpc =
          examples::ValueOrExit("--grpc", ptqwatch::GrpcExporter::Create({.address = flags.grpc}));
      std::printf("grpc %s\n", grpc->address().c_str());
      exporters.push_back(std::move(grpc));
    }
    auto subject = ptqwatch::MakeModuleSubject(
        model, {.replica = make_net, .losses = losses, .probe = probe, .calibration = calibration});
    monitor = examples::ValueOrExit(
        "monitor",
        ptqwatch::Monitor::Create(std::move(subject), examples::MakeMonitorOptions(flags, steps),
                                  std::move(exporters)));
    slice.Request(*monitor).IgnoreError();  // Path says so where it was refused
  }

  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 1; step <= steps; ++step) {
    optimizer.zero_grad();
    losses(model, draw_batch(64)).mean().backward();
    optimizer.step();
    if (monitor) monitor->OnStep({.step = step, .learning_rate = 1e-3, .tokens = 64 * step});
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  if (monitor) monitor->Finish(std::chrono::minutes(2)).IgnoreError();
  std::printf("training seconds %.3f\nweights sha256 %s\n", seconds.count(),
              examples::WeightsSha256(*model).c_str());
  if (monitor && !flags.slice.empty()) {
    const auto path = slice.Path(*monitor);
    std::printf("slice %s\n", (path.ok() ? *path : path.status().ToString()).c_str());
  }
  if (monitor) std::this_thread::sleep_for(std::chrono::duration<double>(flags.linger_seconds));
}
