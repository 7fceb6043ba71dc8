#ifndef PTQWATCH_BENCHMARKS_WEIGHTS_FILE_H_
#define PTQWATCH_BENCHMARKS_WEIGHTS_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpt_under_test.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::benchmarks {

/// A contiguous CPU tensor of float32 or int64, to be written.
TensorSource MakeSource(const std::string& name, const at::Tensor& tensor);
/// Every weight as PREFIX + its name.
void AppendWeights(const std::string& prefix, const std::vector<std::string>& names,
                   const Weights& weights, std::vector<TensorSource>& tensors);

/// A file that was written for the same config: its metadata has Describe(config) as "config".
/// Messages begin with `option`.
absl::StatusOr<SafetensorsFile> OpenWeights(const std::string& option, const std::string& path,
                                            const GptConfig& config);
absl::StatusOr<Weights> ReadWeights(const SafetensorsFile& file, const std::string& prefix,
                                    const std::vector<std::string>& names, const Weights& like);
/// A number of the metadata.
absl::StatusOr<double> ReadNumber(const SafetensorsFile& file, const std::string& key);

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_BENCHMARKS_WEIGHTS_FILE_H_
