#ifndef PTQWATCH_CAPTURE_GATHERED_WEIGHTS_H_
#define PTQWATCH_CAPTURE_GATHERED_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "capture/weight_finder.h"

namespace ptqwatch::internal {

/// Copies that an index has picked from stacked weights [E, a, b]: the factors [S, a, b] of a
/// batched product, one a row of its input. Mixtures of experts make them, such as transformers'
/// `batched_mm`. Storages are held weakly, as in WeightFinder. Not thread-safe.
class GatheredWeights {
 public:
  struct Gather {
    int entry = 0;        ///< of the stacked weight, in the table
    at::Tensor index;     ///< [S], which of the E matrices each factor is
    bool turned = false;  ///< the copy has their transposes
  };
  struct Found {
    Gather gather;
    bool turned = false;     ///< the factors are the transposes [S, b, a]
    bool rewritten = false;  ///< the copy was written to
  };

  /// Records that `copy` is weight[index].
  void Note(const Gather& gather, const at::Tensor& copy);
  /// The copy that all elements of `factors` are, as it is or with each matrix transposed.
  std::optional<Found> Find(const at::Tensor& factors) const;

 private:
  struct Copy {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the key unique
    Gather gather;
    Layout layout;
    int64_t offset = 0;
    int64_t version = 0;
  };
  std::unordered_map<const c10::StorageImpl*, Copy> copies_;
};

/// The places of each value of an index with elements from -count to count - 1, on the index's
/// device; negative ones count from the end.
std::map<int64_t, at::Tensor> PlacesOf(const at::Tensor& index, int64_t count);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_GATHERED_WEIGHTS_H_
