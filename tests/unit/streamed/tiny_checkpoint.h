#ifndef PTQWATCH_TESTS_UNIT_STREAMED_TINY_CHECKPOINT_H_
#define PTQWATCH_TESTS_UNIT_STREAMED_TINY_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "streamed/measure_checkpoint.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::testing {

/// A reader whose reads a test can see, and whose tensors it can change.
class WatchedReader final : public internal::WeightReader {
 public:
  explicit WatchedReader(internal::MapReader::Tensors tensors)
      : tensors_(tensors), reader_(std::move(tensors)) {}
  std::vector<std::string> Names() const override { return reader_.Names(); }
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const override {
    return reader_.Shape(name);
  }
  absl::StatusOr<at::Tensor> Read(std::string_view name) const override {
    if (on_read) on_read(name);
    return reader_.Read(name);
  }
  at::Tensor tensor(const std::string& name) const { return tensors_.at(name); }

  std::function<void(std::string_view)> on_read;

 private:
  const internal::MapReader::Tensors tensors_;
  const internal::MapReader reader_;  // the same handles
};

/// Tokens for TinyConfig, int64 [sequences, length + 1].
inline at::Tensor TinyTokens(int64_t sequences, int64_t length, uint64_t seed) {
  return RandomTokens(sequences, length + 1, 37, seed);
}

/// A tiny model with tokens in several slices and quantizers of several methods.
struct TinyCheckpoint {
  explicit TinyCheckpoint(std::string_view model_type = "llama",
                          std::string_view more = ", \"num_key_value_heads\": 2")
      : config(ParsedTinyConfig(model_type, more)),
        reader(RandomWeights(config)),
        decoder(*internal::Decoder::Create(config, reader)) {
    at::set_num_threads(1);  // other tests run beside this one
    data.probe = TinyTokens(37, 60, 5);
    data.calibration = TinyTokens(20, 60, 6);
    for (const QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
      for (const int bits : {3, 4}) {
        options.quantizers.push_back({.method = method, .bits = bits, .group_size = 16});
      }
    }
    options.quantizers.push_back({.method = QuantizationMethod::kNf4});
    options.curvature.enabled = false;
    options.artifact_size = true;
    options.max_bytes = int64_t{1} << 30;
  }
  TinyCheckpoint(const TinyCheckpoint&) = delete;
  TinyCheckpoint& operator=(const TinyCheckpoint&) = delete;

  absl::StatusOr<Report> Measure(const ExecutionContext& context = {}) const {
    return MeasureCheckpoint(decoder, data, options, context);
  }

  const internal::ModelConfig config;
  WatchedReader reader;
  const internal::Decoder decoder;
  internal::TrajectoryData data;
  internal::CheckpointMeasurement options;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_STREAMED_TINY_CHECKPOINT_H_
