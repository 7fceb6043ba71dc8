#include "snapshot/parameter_digest.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty_like.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "report/layer_groups.h"
#include "snapshot/device_runtime.h"

namespace ptqwatch::internal {
namespace {

// Bytes read between two checks of the context, and copied from a device at once.
constexpr int64_t kPieceBytes = int64_t{64} << 20;
// Small enough that the second digest of the same bytes finds them in the core's cache.
constexpr size_t kCachedBytes = size_t{128} << 10;
// Hexadecimal digits that tell one parameter's bits from others.
constexpr size_t kParameterDigits = 16;

void AddTo(Digest& all, Digest* one, const at::Tensor& piece) {
  const auto* const data = static_cast<const char*>(piece.const_data_ptr());
  if (one == nullptr) return all.AddBytes(data, piece.nbytes());
  for (size_t first = 0; first < piece.nbytes(); first += kCachedBytes) {
    const size_t size = std::min(kCachedBytes, piece.nbytes() - first);
    all.AddBytes(data + first, size);
    one->AddBytes(data + first, size);
  }
}

// A stack has the digest of its parameters' digests.
std::vector<ParameterDigest> Grouped(const std::vector<ParameterDigest>& each) {
  std::vector<ParameterDigest> rows;
  const auto name_of = [&](size_t i) { return std::string_view(each[i].name); };
  for (const GroupedLayers& group : GroupLayers(each.size(), name_of)) {
    if (!group.stacked()) {
      rows.push_back(each[group.members[0]]);
      continue;
    }
    Digest all;
    for (const size_t member : group.members) all.Add(each[member].digest);
    rows.push_back({group.name, all.Hex().substr(0, kParameterDigits)});
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::string> DigestOfParameters(const Replica& replica,
                                               const ExecutionContext& context,
                                               std::vector<ParameterDigest>* each) {
  at::NoGradGuard no_grad;
  Digest digest;
  const std::vector<TensorEntry>& entries = replica.table().entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].is_parameter) continue;
    std::optional<Digest> one;
    if (each != nullptr) one.emplace();
    const at::Tensor loaded = replica.loaded(static_cast<int>(i));
    // The parameter is dense, with any strides, so its elements are consecutive bytes.
    const at::Tensor flat = loaded.as_strided({loaded.numel()}, {1});
    const int64_t at_a_time = kPieceBytes / static_cast<int64_t>(loaded.element_size());
    for (int64_t first = 0; first < flat.numel(); first += at_a_time) {
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
      at::Tensor piece = flat.narrow(0, first, std::min(at_a_time, flat.numel() - first));
      if (!piece.is_cpu()) {
        const at::Tensor host = at::empty_like(piece, piece.options().device(at::kCPU));
        CopyAcross(host, piece);
        piece = host;
      }
      AddTo(digest, one ? &*one : nullptr, piece);
    }
    if (one) {
      each->push_back({replica.name(static_cast<int>(i)), one->Hex().substr(0, kParameterDigits)});
    }
  }
  if (each != nullptr) *each = Grouped(*each);
  return digest.Hex();
}

}  // namespace ptqwatch::internal
