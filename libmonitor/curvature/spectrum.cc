#include "curvature/spectrum.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

std::string ScoutName(const std::string& name) { return StrCat(name, ".scout"); }

}  // namespace

WarmStart WarmStartFrom(const VectorMap& vectors, const std::string& name) {
  const auto find = [&](const std::string& key) {
    const auto found = vectors.find(key);
    return found == vectors.end() ? Vector() : found->second;
  };
  return {find(name), find(ScoutName(name))};
}

void KeepForNext(const WarmStart& found, const std::string& name, VectorMap& vectors) {
  vectors.erase(name);
  vectors.erase(ScoutName(name));
  if (found.vector.defined()) vectors[name] = found.vector;
  if (found.scout.defined()) vectors[ScoutName(name)] = found.scout;
}

VectorMap WithGradient(const VectorSpace& space, const VectorMap& before, const Vector& gradient) {
  VectorMap start = before;
  const double norm = space.Norm(gradient);
  if (!(norm > 0)) return start;
  Vector scout = space.Copy(gradient);
  space.Scale(1 / norm, scout);
  const auto kept = before.find("top.0.scout");
  if (kept != before.end() && kept->second.elements.numel() == space.dimension()) {
    // Either's sign is arbitrary: they shall not cancel.
    space.Axpy(space.Dot(kept->second, scout) < 0 ? -1 : 1, kept->second, scout);
  }
  start["top.0.scout"] = std::move(scout);
  return start;
}

absl::StatusOr<Spectrum> FindSpectrum(SymmetricOperator& hessian, const VectorMap& before,
                                      const SpectrumOptions& options, VectorMap& after,
                                      const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  EigenpairOptions search = options.search;
  search.end = SpectrumEnd::kTop;
  Spectrum spectrum;
  const auto add = [&](std::vector<Eigenpair>& pairs, const WarmStart& start,
                       absl::Span<const Vector> deflated) -> absl::Status {
    // What was found stays in memory beside the search; a Krylov space of one is the top vector.
    const auto kept =
        static_cast<int64_t>(spectrum.top.size() +
                             (spectrum.krylov.basis.size() > 1 ? spectrum.krylov.basis.size() : 0));
    search.max_bytes = options.search.max_bytes - kept * space.bytes();
    absl::StatusOr<Eigenpair> pair =
        ExtremeEigenpair(hessian, start, search, deflated,
                         spectrum.top.empty() ? &spectrum.krylov : nullptr, context);
    if (!pair.ok()) return pair.status();
    spectrum.products += pair->products;
    spectrum.seconds += pair->seconds;
    pairs.push_back(*std::move(pair));
    return absl::OkStatus();
  };

  // Room for the searches after the first one goes before what it learnt of H beside its eigenpair.
  const auto make_room = [&] {
    const auto kept = static_cast<int64_t>(spectrum.top.size() + spectrum.krylov.basis.size());
    if (spectrum.top.empty() ||
        options.search.max_bytes >= (kept + kLeastLanczosVectors) * space.bytes()) {
      return;
    }
    spectrum.krylov = {{spectrum.top[0].vector}, {spectrum.top[0].value}, 1, 0};
  };
  const int top = static_cast<int>(std::min<int64_t>(options.top, space.dimension()));
  std::vector<Vector> found;
  for (int i = 0; i < top; ++i) {
    make_room();
    WarmStart start = WarmStartFrom(before, StrCat("top.", i));
    // The search before saw something of this one.
    if (!start.vector.defined() && i > 0) start.scout = spectrum.top.back().scout;
    if (absl::Status status = add(spectrum.top, start, found); !status.ok()) return status;
    found.push_back(spectrum.top.back().vector);
  }
  if (options.bottom) {
    make_room();
    search.end = SpectrumEnd::kBottom;
    const WarmStart start = WarmStartFrom(before, "bottom.0");
    if (absl::Status status = add(spectrum.bottom, start, {}); !status.ok()) return status;
    KeepForNext(spectrum.bottom[0].next(), "bottom.0", after);
  }
  std::stable_sort(spectrum.top.begin(), spectrum.top.end(),
                   [](const Eigenpair& a, const Eigenpair& b) { return a.value > b.value; });
  for (size_t i = 0; i < spectrum.top.size(); ++i) {
    KeepForNext(spectrum.top[i].next(), StrCat("top.", i), after);
  }
  return spectrum;
}

}  // namespace ptqwatch::internal
