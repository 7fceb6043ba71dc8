#include "weights_file.h"

#include <cstring>

#include "ATen/ops/empty.h"
#include "absl/strings/numbers.h"
#include "base/strings.h"

namespace ptqwatch::benchmarks {

using internal::StrCat;

TensorSource MakeSource(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return MakeTensorSource(
      name, tensor.scalar_type() == at::kLong ? TensorDtype::kI64 : TensorDtype::kF32,
      dense.sizes().vec(),
      std::string(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()));
}

void AppendWeights(const std::string& prefix, const std::vector<std::string>& names,
                   const Weights& weights, std::vector<TensorSource>& tensors) {
  for (size_t i = 0; i < names.size(); ++i) {
    tensors.push_back(MakeSource(prefix + names[i], weights[i]));
  }
}

absl::StatusOr<SafetensorsFile> OpenWeights(const std::string& option, const std::string& path,
                                            const GptConfig& config) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const auto written = file->metadata().find("config");
  const std::string made_with = written == file->metadata().end() ? "?" : written->second;
  if (made_with == Describe(config)) return file;
  return absl::InvalidArgumentError(
      StrCat(option, " ", path, ": made with \"", made_with, "\", now \"", Describe(config), "\""));
}

absl::StatusOr<Weights> ReadWeights(const SafetensorsFile& file, const std::string& prefix,
                                    const std::vector<std::string>& names, const Weights& like) {
  Weights weights;
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StatusOr<std::vector<float>> values = file.ReadFloats(prefix + names[i]);
    if (!values.ok()) return values.status();
    at::Tensor tensor = at::empty(like[i].sizes(), at::kFloat);
    if (std::ssize(*values) != tensor.numel()) {
      return absl::InvalidArgumentError(
          StrCat(file.path(), ": ", names[i], " has another size: another --text?"));
    }
    std::memcpy(tensor.mutable_data_ptr(), values->data(), tensor.nbytes());
    weights.push_back(std::move(tensor));
  }
  return weights;
}

absl::StatusOr<double> ReadNumber(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  double value = 0;
  if (found != file.metadata().end() && absl::SimpleAtod(found->second, &value)) return value;
  return absl::InvalidArgumentError(StrCat(file.path(), ": has no number ", key));
}

}  // namespace ptqwatch::benchmarks
