#include <memory>
#include <utility>
#include <vector>

#include "ATen/ops/from_blob.h"
#include "capture/quantize_backend.h"

namespace ptqwatch::internal {
namespace {

class HostGram final : public LayerGram {
 public:
  explicit HostGram(GramStatistics statistics) : statistics_(std::move(statistics)) {}
  int64_t tokens() const override { return statistics_.tokens; }
  int64_t skipped_rows() const override { return statistics_.skipped_rows; }
  const GramStatistics& statistics() const { return statistics_; }

 private:
  const GramStatistics statistics_;
};

class HostSum final : public GramSum {
 public:
  explicit HostSum(int64_t inputs) : sums_(inputs) {}
  absl::Status Add(const LayerInput& input, const ExecutionContext& context) override {
    return ForEachBlockOfRows(input, [&](MatrixView rows) { return sums_.Add(rows, context); });
  }
  absl::StatusOr<std::unique_ptr<LayerGram>> Take(const ExecutionContext&) override {
    return std::make_unique<HostGram>(sums_.Take());
  }

 private:
  GramAccumulator sums_;
};

double SquaredDisplacement(const std::vector<float>& dequantized, const float* weight) {
  double sum = 0;
  for (size_t i = 0; i < dequantized.size(); ++i) {
    const double step = static_cast<double>(dequantized[i]) - weight[i];
    sum += step * step;
  }
  return sum;
}

}  // namespace

at::Tensor QuantizedMatrix::View(int64_t rows, int64_t cols) const {
  if (on_device.defined() || weight.dequantized.empty()) return on_device;
  // The tensor is only read. It is valid while this object lives.
  return at::from_blob(const_cast<float*>(weight.dequantized.data()), {rows, cols}, at::kFloat);
}

at::Tensor QuantizedMatrix::Take(int64_t rows, int64_t cols) {
  if (on_device.defined() || weight.dequantized.empty()) return std::exchange(on_device, {});
  auto owned = std::make_shared<std::vector<float>>(std::exchange(weight.dequantized, {}));
  float* data = owned->data();
  return at::from_blob(
      data, {rows, cols}, [owned](void*) mutable { owned.reset(); }, at::kFloat);
}

std::unique_ptr<LayerGram> HostBackend::Wrap(GramStatistics statistics) {
  return std::make_unique<HostGram>(std::move(statistics));
}

const GramStatistics& HostBackend::StatisticsOf(const LayerGram& gram) {
  return static_cast<const HostGram&>(gram).statistics();
}

absl::StatusOr<std::unique_ptr<GramSum>> HostBackend::Sum(int64_t inputs) {
  return std::make_unique<HostSum>(inputs);
}

void HostBackend::Quantize(absl::Span<const Task> tasks, OnDone done,
                           const ExecutionContext& caller) {
  ExecutionContext context = caller;
  if (context.host_bytes != nullptr) context.bytes = context.host_bytes;
  std::unique_ptr<LayerQuantizer> quantizer;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const float* values = task.weight.const_data_ptr<float>();
    const bool same_weight = i > 0 && tasks[i - 1].weight.const_data_ptr<float>() == values &&
                             tasks[i - 1].gram == task.gram;
    if (!same_weight) {
      quantizer = std::make_unique<LayerQuantizer>(
          MatrixView{values, task.weight.size(0), task.weight.size(1)},
          task.gram == nullptr ? nullptr : &StatisticsOf(*task.gram));
    }
    absl::Status ready = context.Checkpoint();
    absl::StatusOr<QuantizedWeight> weight =
        ready.ok() ? quantizer->Quantize(task.spec, context) : std::move(ready);
    if (!weight.ok()) {
      done(i, weight.status());
      continue;
    }
    QuantizedMatrix result{.weight = *std::move(weight)};
    result.squared_displacement = SquaredDisplacement(result.weight.dequantized, values);
    if (task.stored_size && !result.weight.codes.empty()) {
      result.stored =
          StoredSizeOf(result.weight, task.spec, task.weight.size(0), task.weight.size(1));
    }
    done(i, std::move(result));
  }
}

}  // namespace ptqwatch::internal
