#include "report/watched_quantizer.h"

#include <tuple>

namespace ptqwatch::internal {
namespace {

constexpr int kFewestUsefulBits = 3;

// Larger is better.
std::tuple<int, int> Rank(std::optional<QuantizationMethod> method, int bits) {
  if (bits < kFewestUsefulBits) return {0, bits};
  return {method == QuantizationMethod::kGptq ? 2 : 1, -bits};
}

template <typename Quantizer>
std::optional<size_t> Best(absl::Span<const Quantizer> quantizers) {
  std::optional<size_t> best;
  for (size_t i = 0; i < quantizers.size(); ++i) {
    if (!best || Rank(quantizers[i].method, quantizers[i].bits) >
                     Rank(quantizers[*best].method, quantizers[*best].bits)) {
      best = i;
    }
  }
  return best;
}

}  // namespace

std::optional<size_t> WatchedQuantizer(absl::Span<const QuantizerSpec> quantizers) {
  return Best(quantizers);
}

std::optional<size_t> WatchedQuantizer(absl::Span<const QuantizationReport> quantizers) {
  return Best(quantizers);
}

}  // namespace ptqwatch::internal
