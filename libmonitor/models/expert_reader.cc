#include "models/expert_reader.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ATen/ops/empty.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {

// Finds the origins of a mixture's tensors.
class ExpertReader::Finder {
 public:
  Finder(const ModelConfig& config, const std::vector<std::string>& names)
      : config_(config), names_(names) {}

  // Adds those of a block that are not in the checkpoint by their names in transformers.
  absl::Status AddBlock(int64_t block) {
    const TensorNames& names = config_.names;
    const std::string prefix = StrCat(names.blocks, block, ".");
    const std::string here = StrCat(prefix, names.mixture);
    const std::string there = StrCat(prefix, names.experts.part);
    const std::string router = StrCat(here, names.router, ".weight");
    const std::string stored_router = StrCat(there, names.experts.router, ".weight");
    if (!Has(router) && Has(stored_router)) Take(router, stored_router);
    PTQWATCH_RETURN_IF_ERROR(AddStack(StrCat(here, "experts.gate_up_proj"), there,
                                      names.experts.gates_ups,
                                      {names.experts.gate, names.experts.up}));
    return AddStack(StrCat(here, "experts.down_proj"), there, names.experts.downs,
                    {names.experts.down});
  }

  std::map<std::string, Origin, std::less<>> origins;
  std::set<std::string> taken;  // names in the checkpoint

 private:
  bool Has(const std::string& name) const {
    return std::binary_search(names_.begin(), names_.end(), name);
  }
  void Take(const std::string& name, const std::string& stored) {
    origins[name].renamed = stored;
    taken.insert(stored);
  }
  absl::Status AddStack(const std::string& name, const std::string& part, std::string_view stack,
                        const std::vector<std::string_view>& matrices) {
    if (Has(name)) return absl::OkStatus();
    const std::string stored = StrCat(part, stack, ".weight");
    if (!stack.empty() && Has(stored)) {
      Take(name, stored);
      return absl::OkStatus();
    }
    Origin origin;
    std::vector<std::string> missing;
    size_t matrices_of_all = 0;
    for (int64_t expert = 0; expert < config_.mixture->experts; ++expert) {
      std::vector<std::string>& own = origin.experts.emplace_back();
      for (const std::string_view matrix : matrices) {
        own.push_back(StrCat(part, "experts.", expert, ".", matrix, ".weight"));
        if (!Has(own.back())) missing.push_back(own.back());
        ++matrices_of_all;
      }
    }
    if (missing.size() == matrices_of_all) return absl::OkStatus();
    if (!missing.empty()) {
      return absl::InvalidArgumentError(StrCat(Quoted(missing.front()), " is missing, one of ",
                                               missing.size(), " matrices of experts"));
    }
    for (const std::vector<std::string>& own : origin.experts) taken.insert(own.begin(), own.end());
    origins.emplace(name, std::move(origin));
    return absl::OkStatus();
  }

  const ModelConfig& config_;
  const std::vector<std::string>& names_;
};

absl::StatusOr<std::unique_ptr<WeightReader>> ExpertReader::Create(const ModelConfig& config,
                                                                   const WeightReader& weights) {
  if (!config.mixture) return nullptr;
  std::unique_ptr<ExpertReader> reader(new ExpertReader(weights));
  const std::vector<std::string> names = weights.Names();
  Finder finder(config, names);
  for (int64_t block = 0; block < config.blocks; ++block) {
    if (!config.layers[static_cast<size_t>(block)].mixture) continue;
    const absl::Status added = finder.AddBlock(block);
    if (added.ok()) continue;
    const std::string source = weights.Source();
    return absl::InvalidArgumentError(
        StrCat(source.empty() ? "" : StrCat(Quoted(source), ": "), added.message()));
  }
  if (finder.origins.empty()) return nullptr;
  for (const std::string& name : names) {
    if (!finder.taken.contains(name)) reader->names_.push_back(name);
  }
  for (const auto& [name, origin] : finder.origins) reader->names_.push_back(name);
  std::sort(reader->names_.begin(), reader->names_.end());
  reader->origins_ = std::move(finder.origins);
  return reader;
}

absl::StatusOr<std::vector<int64_t>> ExpertReader::Shape(std::string_view name) const {
  const auto found = origins_.find(name);
  if (found == origins_.end()) return weights_.Shape(name);
  if (!found->second.renamed.empty()) return weights_.Shape(found->second.renamed);
  const std::vector<std::vector<std::string>>& experts = found->second.experts;
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> first, weights_.Shape(experts[0][0]));
  for (const std::vector<std::string>& own : experts) {
    for (const std::string& matrix : own) {
      PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, weights_.Shape(matrix));
      if (shape == first && shape.size() == 2) continue;
      return absl::InvalidArgumentError(StrCat(
          "tensor ", Quoted(matrix), " is not a matrix of the shape of ", Quoted(experts[0][0])));
    }
  }
  return std::vector<int64_t>{std::ssize(experts), std::ssize(experts[0]) * first[0], first[1]};
}

absl::StatusOr<at::Tensor> ExpertReader::Read(std::string_view name) const {
  const auto found = origins_.find(name);
  if (found == origins_.end()) return weights_.Read(name);
  if (!found->second.renamed.empty()) return weights_.Read(found->second.renamed);
  std::vector<int64_t> all(found->second.experts.size());
  std::iota(all.begin(), all.end(), 0);
  return ReadExperts(found->second, all);
}

int64_t ExpertReader::ReadingBytes(std::string_view name) const {
  const auto found = origins_.find(name);
  if (found == origins_.end()) return weights_.ReadingBytes(name);
  if (!found->second.renamed.empty()) return weights_.ReadingBytes(found->second.renamed);
  const std::string& matrix = found->second.experts[0][0];  // all have its shape
  const auto shape = weights_.Shape(matrix);
  return shape.ok() ? 4 * ElementsOf(*shape) + weights_.ReadingBytes(matrix) : 0;
}

absl::StatusOr<at::Tensor> ExpertReader::ReadRows(std::string_view name,
                                                  absl::Span<const int64_t> rows) const {
  const auto found = origins_.find(name);
  if (found == origins_.end()) return weights_.ReadRows(name, rows);
  if (!found->second.renamed.empty()) return weights_.ReadRows(found->second.renamed, rows);
  return ReadExperts(found->second, rows);
}

absl::StatusOr<at::Tensor> ExpertReader::ReadExperts(const Origin& origin,
                                                     absl::Span<const int64_t> experts) const {
  return Guard("experts", absl::StatusCode::kInternal, [&]() -> absl::StatusOr<at::Tensor> {
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> shape,
                              weights_.Shape(origin.experts[0][0]));
    const int64_t matrices = std::ssize(origin.experts[0]);
    const at::Tensor read =
        at::empty({std::ssize(experts), matrices * shape[0], shape[1]}, at::kFloat);
    for (size_t i = 0; i < experts.size(); ++i) {
      const auto& own = origin.experts[static_cast<size_t>(experts[i])];
      for (int64_t m = 0; m < matrices; ++m) {
        PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor matrix,
                                  weights_.Read(own[static_cast<size_t>(m)]));
        read.select(0, static_cast<int64_t>(i)).narrow(0, m * shape[0], shape[0]).copy_(matrix);
      }
    }
    return read;
  });
}

}  // namespace ptqwatch::internal
