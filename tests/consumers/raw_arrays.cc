// A trainer with plain float arrays instead of torch::nn: softmax regression with a hand-written
// gradient. A server beside it shows its metrics.
#include <chrono>
#include <cmath>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/matmul.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"

constexpr int64_t kInputs = 64, kClasses = 8, kSamples = 512;

int main() {
  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  std::vector<float> x(kSamples * kInputs), weight(kInputs * kClasses, 0.0f);
  std::vector<int64_t> label(kSamples);
  for (float& value : x) value = normal(random);
  for (int64_t i = 0; i < kSamples; ++i) label[i] = x[i * kInputs] > 0 ? 1 : 0;

  auto subject = ptqwatch::MakeFunctionSubject(
      {.live = {{"weight", at::from_blob(weight.data(), {kInputs, kClasses}, at::kFloat), true}},
       .losses =
           [](const ptqwatch::TensorMap& tensors, const ptqwatch::Batch& batch) {
             return ptqwatch::LossValues(at::cross_entropy_loss(
                 at::matmul(batch[0], tensors.at("weight")), batch[1], {}, at::Reduction::None));
           },
       .probe = {{at::from_blob(x.data(), {kSamples, kInputs}, at::kFloat),
                  at::from_blob(label.data(), {kSamples}, at::kLong)}}});
  ptqwatch::MonitorOptions options{.schedule = {.every = 100}};
  options.on_failure = ptqwatch::OnFailure::kError;
  options.layers.output_head = true;  // there is no other layer
  options.serve = ptqwatch::ServeOptions{
      .http = "127.0.0.1:0", .grpc = "127.0.0.1:0", .linger = std::chrono::seconds(0)};
  auto monitor = ptqwatch::Monitor::Create(std::move(subject), std::move(options));
  if (!monitor.ok()) {
    std::cerr << monitor.status() << "\n";
    return 1;
  }
  ptqwatch::ServerStatus served = (*monitor)->served();
  while (served.state == ptqwatch::ServerState::kStarting) {  // on a busy machine
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    served = (*monitor)->served();
  }
  std::cout << "metrics " << served.metrics << "\ngrpc " << served.grpc << "\n";

  std::vector<float> logits(kClasses), gradient(weight.size());
  for (int64_t step = 1; step <= 200; ++step) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (int64_t i = 0; i < kSamples; ++i) {
      float sum = 0;
      for (int64_t c = 0; c < kClasses; ++c) {
        float z = 0;
        for (int64_t j = 0; j < kInputs; ++j) z += x[i * kInputs + j] * weight[j * kClasses + c];
        sum += logits[c] = std::exp(z);
      }
      for (int64_t c = 0; c < kClasses; ++c) {
        const float error = logits[c] / sum - (label[i] == c ? 1.0f : 0.0f);
        for (int64_t j = 0; j < kInputs; ++j)
          gradient[j * kClasses + c] += error * x[i * kInputs + j];
      }
    }
    for (size_t k = 0; k < weight.size(); ++k) weight[k] -= 0.5f * gradient[k] / kSamples;
    (*monitor)->OnStep({.step = step, .learning_rate = 0.5});
  }
  if (const absl::Status status = (*monitor)->Finish(std::chrono::minutes(1)); !status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  const auto newest = (*monitor)->latest();
  std::cout << "reports " << newest->report.sequence << ", step " << newest->report.step << "\n";
  return newest->report.step == 200 ? 0 : 1;
}
