#include "streamed/checkpoint_tensors.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "ATen/core/Tensor.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "capture/capture_plan.h"
#include "snapshot/finite.h"

namespace ptqwatch::internal {
namespace {

// Bytes hashed between two checks of the context.
constexpr size_t kBytesHashed = size_t{64} << 20;

// CheckFinite, which names the expert of a stack.
absl::Status CheckMatrices(const std::string& name, const at::Tensor& tensor) {
  if (tensor.dim() != 3) return CheckFinite(name, tensor);
  for (int64_t expert = 0; expert < tensor.size(0); ++expert) {
    PTQWATCH_RETURN_IF_ERROR(CheckFinite(StrCat(name, "[", expert, "]"), tensor.select(0, expert)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> DigestOfTensors(const Decoder& decoder,
                                            const ExecutionContext& context) {
  Digest digest;
  for (const std::string& name : decoder.TensorNames()) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor read, decoder.weights().Read(name));
    const at::Tensor tensor = read.contiguous();
    PTQWATCH_RETURN_IF_ERROR(CheckMatrices(name, tensor));
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    for (size_t first = 0; first < tensor.nbytes(); first += kBytesHashed) {
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
      digest.AddBytes(data + first, std::min(kBytesHashed, tensor.nbytes() - first));
    }
  }
  return digest.Hex();
}

std::vector<SkippedLayer> SkippedTensors(const Decoder& decoder) {
  std::set<std::string, std::less<>> quantized;
  std::set<std::string, std::less<>> routers;
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    for (const DecoderLinear& linear : decoder.LinearsOf(block)) quantized.insert(linear.tensor());
    routers.insert(
        LayoutOf(decoder.config(), block).vectors[static_cast<size_t>(BlockVector::kRouter)].name);
  }
  const TensorNames& names = decoder.config().names;
  const bool has_head =
      decoder.weights().Shape(names.head).ok() ||
      (!names.other_head.empty() && decoder.weights().Shape(names.other_head).ok());
  std::vector<SkippedLayer> skipped;
  for (const std::string& name : decoder.TensorNames()) {
    const auto shape = decoder.weights().Shape(name);
    if (!shape.ok() || quantized.contains(name)) continue;
    int64_t parameters = 1;
    for (int64_t size : *shape) parameters *= size;
    const bool embedding = name == names.embedding || name == names.positions;
    const bool head =
        name == names.head || name == names.other_head || (name == names.embedding && !has_head);
    skipped.push_back({.name = name,
                       .reason = std::string(embedding && head ? "output head, tied to an embedding"
                                             : embedding       ? "embedding"
                                             : head            ? "output head"
                                             : routers.contains(name) ? kRouter
                                                                      : kNotAMatrix),
                       .parameters = parameters});
  }
  return skipped;
}

}  // namespace ptqwatch::internal
