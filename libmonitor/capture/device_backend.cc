#include "capture/device_backend.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cuda/device_gram.h"
#include "cuda/device_quantizer.h"

namespace ptqwatch::internal {
namespace {

// The arena has room for one layer, and for up to kTogether of its shape within kTogetherBytes.
constexpr int64_t kTogether = 4;
constexpr int64_t kTogetherBytes = int64_t{512} << 20;
// The arena has room for adding this many rows at once.
constexpr int64_t kRowsAtATime = 32768;
// Warm adds this many, as in a small batch.
constexpr int64_t kWarmRows = 2048;

class DeviceLayerGram final : public LayerGram {
 public:
  DeviceLayerGram(DeviceGram gram, std::shared_ptr<ArenaScope> memory)
      : memory_(std::move(memory)), gram_(std::move(gram)) {}
  int64_t tokens() const override { return tokens_; }
  int64_t skipped_rows() const override { return gram_.rows() - tokens_; }
  const DeviceGram& gram() const { return gram_; }
  // The device counts the tokens; the count is known once a layer is quantized.
  void SetTokens(int64_t tokens) const { tokens_ = tokens; }

 private:
  const std::shared_ptr<ArenaScope> memory_;
  const DeviceGram gram_;
  mutable int64_t tokens_ = 0;
};

class DeviceSum final : public GramSum {
 public:
  DeviceSum(DeviceGram gram, std::shared_ptr<ArenaScope> memory)
      : memory_(std::move(memory)), gram_(std::move(gram)) {}

  absl::Status Add(const LayerInput& input, const ExecutionContext& context) override {
    return ForEachBlockOfRows(input, Readable, [&](const at::Tensor& rows) {
      return gram_.Add({.data = rows.const_data_ptr(),
                        .type = TypeOf(rows),
                        .rows = rows.size(0),
                        .cols = rows.size(1),
                        .stride = rows.size(1)},
                       context);
    });
  }
  absl::StatusOr<std::unique_ptr<LayerGram>> Take(const ExecutionContext& context) override {
    PTQWATCH_RETURN_IF_ERROR(gram_.Finish(context));
    return std::make_unique<DeviceLayerGram>(std::move(gram_), std::move(memory_));
  }

 private:
  static at::Tensor Readable(const at::Tensor& tensor) {
    const at::ScalarType dtype = tensor.scalar_type();
    return dtype == at::kBFloat16 || dtype == at::kHalf ? tensor : tensor.to(at::kFloat);
  }
  static RowType TypeOf(const at::Tensor& rows) {
    if (rows.scalar_type() == at::kBFloat16) return RowType::kBFloat16;
    return rows.scalar_type() == at::kHalf ? RowType::kFloat16 : RowType::kFloat32;
  }

  std::shared_ptr<ArenaScope> memory_;
  DeviceGram gram_;
};

const DeviceLayerGram* OnDevice(const LayerGram* gram) {
  return static_cast<const DeviceLayerGram*>(gram);
}

// Copies to the host what the size of a result depends on.
absl::StatusOr<StoredSize> SizeOfResult(ComputeDevice& compute, const DeviceResult& result,
                                        const QuantizerSpec& spec,
                                        const ExecutionContext& context) {
  Reservation held(context.host_bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(result.rows * result.cols, "the codes of a weight"));
  QuantizedWeight weight;
  weight.outlier_columns = result.numbers.outlier_columns;
  weight.codes.resize(static_cast<size_t>(result.rows * result.cols));
  // Their number counts, not their values.
  if (result.channel_scale != nullptr)
    weight.channel_scale.resize(static_cast<size_t>(result.cols));
  const HostCopy codes = {weight.codes.data(), result.codes, std::ssize(weight.codes)};
  PTQWATCH_RETURN_IF_ERROR(compute.Read({&codes, 1}));
  return StoredSizeOf(weight, spec, result.rows, result.cols);
}

DeviceLayer AsDeviceLayer(const QuantizeBackend::Task& task) {
  return {.weight = task.weight.const_data_ptr<float>(),
          .rows = task.weight.size(0),
          .cols = task.weight.size(1),
          .gram = task.gram == nullptr ? nullptr : &OnDevice(task.gram)->gram(),
          .spec = task.spec};
}

}  // namespace

absl::Status DeviceBackend::Warm(const BackendNeeds& needs) {
  at::NoGradGuard no_grad;
  const ExecutionContext context;
  // Neither constant nor drawn at random: the trainer's generators stay as they are.
  const auto matrix = [&](int64_t rows, int64_t cols) {
    return at::arange(rows * cols, at::TensorOptions().dtype(at::kFloat).device(device_))
        .sin_()
        .view({rows, cols});
  };
  const auto gram_of = [&](int64_t inputs,
                           at::ScalarType dtype) -> absl::StatusOr<std::unique_ptr<LayerGram>> {
    PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<GramSum> sum, Sum(inputs));
    PTQWATCH_RETURN_IF_ERROR(sum->Add({matrix(kWarmRows, inputs).to(dtype), {}}, context));
    return sum->Take(context);
  };
  for (int64_t inputs : std::set(needs.gram_inputs.begin(), needs.gram_inputs.end())) {
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      PTQWATCH_RETURN_IF_ERROR(gram_of(inputs, dtype).status());
    }
  }
  std::map<std::pair<int64_t, int64_t>, std::vector<QuantizerSpec>> shapes;
  for (const BackendNeeds::Layer& layer : needs.layers) {
    std::vector<QuantizerSpec>& specs = shapes[{layer.outputs, layer.inputs}];
    if (!DeviceQuantizer::Supports(layer.spec)) continue;
    QuantizerSpec spec = layer.spec;
    spec.min_tokens_ratio = 0;  // otherwise RTN would replace GPTQ in wide layers
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
  }
  absl::Status status;
  for (const auto& [shape, specs] : shapes) {
    if (specs.empty()) continue;
    PTQWATCH_ASSIGN_OR_RETURN(const auto gram, gram_of(shape.second, at::kFloat));
    const at::Tensor weight = matrix(shape.first, shape.second);
    std::vector<Task> tasks;
    for (const QuantizerSpec& spec : specs) tasks.push_back({weight, gram.get(), spec});
    const auto note = [&](size_t, const absl::StatusOr<QuantizedMatrix>& result) {
      status.Update(result.status());
    };
    Quantize(tasks, note, context);
  }
  return status;
}

absl::StatusOr<std::unique_ptr<GramSum>> DeviceBackend::Sum(int64_t inputs) {
  std::shared_ptr<ArenaScope> memory = grams_.lock();
  if (memory == nullptr) grams_ = memory = std::make_shared<ArenaScope>(compute_->arena());
  PTQWATCH_ASSIGN_OR_RETURN(DeviceGram gram, DeviceGram::Create(*compute_, inputs));
  return std::make_unique<DeviceSum>(std::move(gram), std::move(memory));
}

void DeviceBackend::Quantize(absl::Span<const Task> tasks, OnDone done,
                             const ExecutionContext& context) {
  std::vector<size_t> device;
  std::vector<size_t> host;
  for (size_t i = 0; i < tasks.size(); ++i) {
    (DeviceQuantizer::Supports(tasks[i].spec) ? device : host).push_back(i);
  }
  for (absl::Span<const size_t> left = device; !left.empty();) {
    const size_t count = FittingRun(tasks, left);
    QuantizeOnDevice(tasks, left.first(count), done, context);
    left.remove_prefix(count);
  }
  if (!host.empty()) QuantizeOnHost(tasks, host, done, context);
}

size_t DeviceBackend::FittingRun(absl::Span<const Task> tasks, absl::Span<const size_t> which) {
  std::vector<DeviceLayer> layers;
  for (size_t i : which) {
    layers.push_back(AsDeviceLayer(tasks[i]));
    const absl::StatusOr<int64_t> bytes = DeviceQuantizer::WorkingBytes(layers);
    if (!bytes.ok() || *bytes > compute_->arena().remaining()) break;
    if (layers.size() == which.size()) return which.size();
  }
  return std::max<size_t>(1, layers.size() - 1);
}

void DeviceBackend::QuantizeOnDevice(absl::Span<const Task> tasks, absl::Span<const size_t> which,
                                     OnDone done, const ExecutionContext& context) {
  std::vector<DeviceLayer> layers;
  std::vector<at::Tensor> dequantized;
  for (size_t i : which) {
    const Task& task = tasks[i];
    at::Tensor& result = dequantized.emplace_back(
        at::empty(task.weight.sizes(), at::TensorOptions().dtype(at::kFloat).device(device_)));
    layers.push_back(AsDeviceLayer(task));
    layers.back().dequantized = result.mutable_data_ptr<float>();
  }
  DeviceQuantizer quantizer(*compute_);
  absl::Status status = quantizer.Begin(layers, context);
  absl::StatusOr<std::vector<DeviceResult>> results =
      status.ok() ? quantizer.Collect(context) : std::move(status);
  if (!results.ok()) {
    // Frees the tensors. Work still queued on the device's stream runs before the memory is reused.
    for (size_t i : which) done(i, results.status());
    return;
  }
  for (size_t k = 0; k < which.size(); ++k) {
    const Task& task = tasks[which[k]];
    DeviceResult& result = (*results)[k];
    if (task.gram != nullptr) OnDevice(task.gram)->SetTokens(result.tokens);
    std::optional<StoredSize> stored;
    if (task.stored_size && result.codes != nullptr) {
      const absl::StatusOr<StoredSize> size = SizeOfResult(*compute_, result, task.spec, context);
      // Without memory for the codes the size alone is missing.
      if (!size.ok() && !absl::IsResourceExhausted(size.status())) {
        done(which[k], size.status());
        continue;
      }
      if (size.ok()) stored = *size;
    }
    QuantizedMatrix matrix{.weight = std::move(result.numbers), .stored = stored};
    if (result.dequantized != nullptr) matrix.on_device = std::move(dequantized[k]);
    matrix.squared_displacement = result.squared_error.value_or(0);
    done(which[k], std::move(matrix));
  }
}

void DeviceBackend::QuantizeOnHost(absl::Span<const Task> tasks, absl::Span<const size_t> which,
                                   OnDone done, const ExecutionContext& context) {
  std::map<const LayerGram*, std::unique_ptr<LayerGram>> grams;
  std::map<const void*, at::Tensor> weights;
  HostBackend host;
  for (size_t i : which) {
    Task task = tasks[i];
    at::Tensor& weight = weights[task.weight.const_data_ptr()];
    if (!weight.defined()) weight = task.weight.cpu();
    task.weight = weight;
    if (task.gram != nullptr) {
      std::unique_ptr<LayerGram>& copy = grams[task.gram];
      if (copy == nullptr) {
        absl::StatusOr<GramStatistics> statistics = OnDevice(task.gram)->gram().CopyToHost();
        if (!statistics.ok()) {
          done(i, statistics.status());
          continue;
        }
        OnDevice(task.gram)->SetTokens(statistics->tokens);
        copy = HostBackend::Wrap(*std::move(statistics));
      }
      task.gram = copy.get();
    }
    host.Quantize(
        absl::MakeConstSpan(&task, 1),
        [&](size_t, absl::StatusOr<QuantizedMatrix> result) { done(i, std::move(result)); },
        context);
  }
}

absl::StatusOr<int64_t> DeviceArenaBytes(ComputeDevice& compute, const BackendNeeds& needs) {
  int64_t grams = 0;
  int64_t adding = 0;
  for (int64_t inputs : needs.gram_inputs) {
    grams += Arena::Padded(DeviceGram::Bytes(inputs));
    for (RowType type : {RowType::kFloat32, RowType::kBFloat16, RowType::kFloat16}) {
      adding = std::max(adding, DeviceGram::WorkingBytes(inputs, kRowsAtATime, type));
    }
  }
  int64_t quantizing = 0;
  for (const BackendNeeds::Layer& shape : needs.layers) {
    if (!DeviceQuantizer::Supports(shape.spec)) continue;
    const DeviceGram gram = DeviceGram::OfShape(compute, shape.inputs);
    // The sizes do not depend on the values of the weight and the Gram.
    const float weight = 0;
    const DeviceLayer layer{.weight = &weight,
                            .rows = shape.outputs,
                            .cols = shape.inputs,
                            .gram = &gram,
                            .spec = shape.spec};
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t bytes, DeviceQuantizer::WorkingBytes({&layer, 1}));
    quantizing = std::max(quantizing, bytes);
  }
  const int64_t together = std::max(quantizing, std::min(kTogether * quantizing, kTogetherBytes));
  return grams + std::max(adding, together);
}

}  // namespace ptqwatch::internal
