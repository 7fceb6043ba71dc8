#include "output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::tools {
namespace {

using internal::StrCat;

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kConfigKey[] = "quantization_config";
constexpr const char* kFiles[] = {"model.safetensors", "config.json"};

// Fails here rather than after hours of work.
absl::Status CheckWritable(const Flags& flags, const fs::path& folder) {
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("--out: ", flags.out, ": cannot write to ",
                                           folder.string(), ": ", std::strerror(errno)));
}

absl::Status CheckFolder(const Flags& flags) {
  std::error_code error;
  const fs::path folder(flags.out);
  if (fs::exists(folder, error)) {
    if (!fs::is_directory(folder, error)) {
      return absl::InvalidArgumentError(StrCat("--out: ", flags.out, " is not a folder"));
    }
    for (const char* name : kFiles) {
      if (!flags.force && fs::exists(folder / name, error)) {
        return absl::InvalidArgumentError(
            StrCat("--out: ", flags.out, " already has a ", name, "; --force replaces it"));
      }
    }
    return CheckWritable(flags, folder);
  }
  fs::path parent = fs::absolute(folder, error).lexically_normal();
  // "a/b/" has the same parent as "a/b".
  if (!parent.has_filename()) parent = parent.parent_path();
  parent = parent.parent_path();
  if (!fs::is_directory(parent, error)) {
    return absl::InvalidArgumentError(
        StrCat("--out: ", flags.out, ": no such folder: ", parent.string()));
  }
  return CheckWritable(flags, parent);
}

// Wraps `source` so that reads fail once `cancel` is cancelled.
TensorSource Cancellable(TensorSource source, const CancelToken& cancel) {
  source.read = [read = std::move(source.read), cancel](int64_t offset, absl::Span<char> out) {
    return cancel.cancelled() ? absl::CancelledError("stopped") : read(offset, out);
  };
  return source;
}

}  // namespace

absl::StatusOr<Output> Output::Create(const Flags& flags) {
  PTQWATCH_RETURN_IF_ERROR(CheckFolder(flags));
  Output output(flags);
  const fs::path path = fs::path(flags.weights).parent_path() / "config.json";
  std::error_code error;
  if (!fs::exists(path, error)) return output;
  std::ifstream file(path, std::ios::binary);
  output.original_config_ = {std::istreambuf_iterator<char>(file), {}};
  const json config = json::parse(output.original_config_, nullptr, /*allow_exceptions=*/false);
  if (!file || !config.is_object()) {
    return absl::InvalidArgumentError(
        StrCat("--weights: ", path.string(), " beside it is not a JSON object"));
  }
  if (config.contains(kConfigKey)) {
    return absl::InvalidArgumentError(StrCat("--weights: ", path.string(), " beside it has a ",
                                             kConfigKey, ": the model is already quantized"));
  }
  return output;
}

void Output::Add(const LayerPlan& layer, std::vector<PackedTensor> tensors) {
  for (PackedTensor& tensor : tensors) tensor.name = StrCat(layer.module, ".", tensor.name);
  const QuantizerSpec& spec = flags_.SpecFor(layer.module);
  if (!(spec == flags_.spec)) others_.push_back({.name = layer.module, .spec = spec});
  layers_[layer.tensor] = std::move(tensors);
}

absl::Status Output::Write(const SafetensorsFile& weights, std::vector<std::string> left_out,
                           const CancelToken& cancel) const {
  std::vector<TensorSource> sources;
  for (const auto& [name, info] : weights.tensors()) {
    const auto packed = layers_.find(name);
    if (packed == layers_.end()) {
      sources.push_back(Cancellable(MakeTensorSource(weights, name), cancel));
      continue;
    }
    for (const PackedTensor& tensor : packed->second) {
      sources.push_back(Cancellable(
          MakeTensorSource(tensor.name, tensor.dtype, tensor.shape, tensor.bytes), cancel));
    }
  }
  std::sort(left_out.begin(), left_out.end());
  json config = json::parse(original_config_);
  config[kConfigKey] =
      json::parse(QuantizationConfigJson(flags_.format, flags_.spec, left_out, others_));
  return WriteCheckpoint(flags_.out, sources, weights.metadata(),
                         config.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace ptqwatch::tools
