#include "curvature/spectrum.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

std::string SecondaryName(const std::string& name) { return StrCat(name, ".secondary"); }
std::string GradientName(const std::string& name) { return StrCat(name, ".gradient"); }

int64_t TopEigenvalues(const VectorSpace& space, const SpectrumOptions& options) {
  return std::min<int64_t>(options.top, space.dimension());
}

// Drops the first search's Krylov space but keeps the eigenpair, if later searches need memory.
void MakeRoom(const VectorSpace& space, int64_t max_bytes, const std::vector<EigenpairSearch>& top,
              KrylovSpace& krylov) {
  const auto kept = static_cast<int64_t>(top.size() + krylov.basis.size());
  if (top.empty() || max_bytes >= (kept + MinSearchVectors(space)) * space.bytes()) return;
  krylov = {{top[0].next.vector}, {top[0].pair.value}, 1, 0};
}

}  // namespace

WarmStart WarmStartFrom(const VectorMap& vectors, const std::string& name) {
  const auto find = [&](const std::string& key) {
    const auto found = vectors.find(key);
    return found == vectors.end() ? Vector() : found->second;
  };
  return {find(name), find(SecondaryName(name)), find(GradientName(name))};
}

void KeepForNext(const WarmStart& found, const std::string& name, VectorMap& vectors) {
  vectors.erase(name);
  vectors.erase(SecondaryName(name));
  if (found.vector.defined()) vectors[name] = found.vector;
  if (found.secondary.defined()) vectors[SecondaryName(name)] = found.secondary;
}

VectorMap WithGradient(const VectorMap& before, const Vector& gradient) {
  VectorMap start = before;
  start[GradientName("top.0")] = gradient;
  return start;
}

absl::Status CheckSpectrumMemory(const VectorSpace& space, const SpectrumOptions& options,
                                 const ExecutionContext& context) {
  // The last search runs beside the eigenvectors found before it.
  const int64_t found = TopEigenvalues(space, options) - (options.bottom ? 0 : 1);
  return CheckVectorMemory(space, MinSearchVectors(space) + found, options.search.max_bytes,
                           context);
}

absl::StatusOr<SpectrumSearch> FindSpectrum(SymmetricOperator& hessian, const VectorMap& before,
                                            const SpectrumOptions& options,
                                            const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  PTQWATCH_RETURN_IF_ERROR(CheckSpectrumMemory(space, options, context));
  SpectrumSearch result;
  std::vector<EigenpairSearch> top;
  const auto find = [&](SpectrumEnd end, const WarmStart& start,
                        absl::Span<const Vector> deflated) -> absl::StatusOr<EigenpairSearch> {
    MakeRoom(space, options.search.max_bytes, top, result.krylov);
    // Earlier results stay in memory during the search. A Krylov space of size 1 is the top vector.
    const size_t krylov = result.krylov.basis.size() > 1 ? result.krylov.basis.size() : 0;
    EigenpairOptions search = options.search;
    search.end = end;
    search.max_bytes -= static_cast<int64_t>(top.size() + krylov) * space.bytes();
    PTQWATCH_ASSIGN_OR_RETURN(EigenpairSearch found,
                              ExtremeEigenpair(hessian, start, search, deflated, context));
    result.spectrum.products += found.pair.products;
    result.spectrum.seconds += found.pair.seconds;
    return found;
  };

  std::vector<Vector> vectors;
  for (int64_t i = 0; i < TopEigenvalues(space, options); ++i) {
    WarmStart start = WarmStartFrom(before, StrCat("top.", i));
    // The previous search has found a part of this eigenvector.
    if (!start.vector.defined() && i > 0) start.secondary = top.back().next.secondary;
    PTQWATCH_ASSIGN_OR_RETURN(EigenpairSearch found, find(SpectrumEnd::kTop, start, vectors));
    if (i == 0) result.krylov = std::exchange(found.krylov, {});
    vectors.push_back(found.next.vector);
    top.push_back(std::move(found));
  }
  if (options.bottom) {
    PTQWATCH_ASSIGN_OR_RETURN(EigenpairSearch found,
                              find(SpectrumEnd::kBottom, WarmStartFrom(before, "bottom.0"), {}));
    KeepForNext(found.next, "bottom.0", result.next);
    result.spectrum.bottom.push_back(std::move(found.pair));
  }
  // The first search's holds for all of H, the others' in a complement.
  const double bound = top[0].pair.bound;
  std::stable_sort(top.begin(), top.end(), [](const EigenpairSearch& a, const EigenpairSearch& b) {
    return a.pair.value > b.pair.value;
  });
  top[0].pair.bound = std::max(top[0].pair.bound, bound);
  for (size_t i = 0; i < top.size(); ++i) {
    KeepForNext(top[i].next, StrCat("top.", i), result.next);
    result.spectrum.top.push_back(std::move(top[i].pair));
  }
  return result;
}

}  // namespace ptqwatch::internal
