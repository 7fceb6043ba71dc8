#include "staging/whole_tensors.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// A part of a tensor: a box, or a run of the flattened tensor, which is a box of that.
struct Part {
  int64_t rank = 0;
  bool flat = false;
  std::vector<int64_t> begin;
  std::vector<int64_t> sizes;
  at::Tensor tensor;

  int64_t elements() const { return tensor.numel(); }
};

// A tensor under construction.
struct Whole {
  std::string name;
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  std::vector<Part> parts;
  at::Tensor tensor;
};

std::string SizesText(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += StrCat(text.size() > 1 ? ", " : "", size);
  return text + "]";
}

absl::Status Wrong(const std::string& name, int64_t rank, std::string_view what) {
  return absl::FailedPreconditionError(StrCat("tensor '", name, "' of rank ", rank, " ", what));
}

int64_t Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// A scalar has no shape, but a part of one has an offset.
bool IsPart(const SharedTensor& shared) {
  return !shared.global_shape.empty() || !shared.part_offset.empty();
}

absl::StatusOr<Part> PartOf(const SharedTensor& shared, int64_t rank, const SharedMemory& memory) {
  Part part{.rank = rank,
            .begin = shared.part_offset,
            .sizes = shared.sizes,
            .tensor = memory.Tensors({shared})[0].tensor};
  if (!IsPart(shared)) {
    part.begin.assign(shared.sizes.size(), 0);
    return part;
  }
  std::vector<int64_t> whole = shared.global_shape;
  if (part.begin.size() != whole.size()) {
    part.flat = part.begin.size() == 1;
    whole = {Product(whole)};
  }
  bool fits = part.begin.size() == whole.size() && part.sizes.size() == whole.size();
  for (size_t i = 0; fits && i < whole.size(); ++i) {
    fits = part.begin[i] >= 0 && part.sizes[i] <= whole[i] - part.begin[i];
  }
  if (fits || part.elements() == 0) return part;
  return Wrong(shared.name, rank,
               StrCat("is a part of shape ", SizesText(part.sizes), " at ", SizesText(part.begin),
                      ", which does not fit into ", SizesText(shared.global_shape)));
}

bool Overlap(const Part& a, const Part& b) {
  if (a.flat != b.flat) return true;
  for (size_t i = 0; i < a.begin.size(); ++i) {
    if (a.begin[i] + a.sizes[i] <= b.begin[i] || b.begin[i] + b.sizes[i] <= a.begin[i]) {
      return false;
    }
  }
  return true;
}

// Adds a part, unless the whole has it.
absl::Status AddPart(Part part, Whole& whole) {
  if (part.elements() == 0) return absl::OkStatus();
  for (const Part& other : whole.parts) {
    if (!Overlap(other, part)) continue;
    if (other.begin == part.begin && other.sizes == part.sizes) return absl::OkStatus();
    return Wrong(whole.name, part.rank, StrCat("overlaps with the part of rank ", other.rank));
  }
  whole.parts.push_back(std::move(part));
  return absl::OkStatus();
}

// The tensors of all ranks by name; tied names have the same number.
class Collector {
 public:
  absl::Status Add(const WholeTensors::Rank& rank) {
    std::map<int64_t, size_t> at_offset;
    std::map<size_t, int64_t> offset_of;
    for (const SharedTensor& shared : *rank.layout) {
      const std::vector<int64_t>& sizes = IsPart(shared) ? shared.global_shape : shared.sizes;
      const auto known = number_.find(shared.name);
      const auto tied = at_offset.find(shared.offset);
      size_t number = wholes_.size();
      if (known != number_.end()) {
        number = known->second;
        if (tied != at_offset.end() && tied->second != number) {
          return Wrong(shared.name, rank.rank, "is tied to another tensor than on other ranks");
        }
      } else {
        if (tied != at_offset.end()) number = tied->second;
        number_[shared.name] = number;
        listed_.push_back({shared.name, {}, shared.is_parameter});
      }
      at_offset[shared.offset] = number;
      if (const auto [other, first] = offset_of.emplace(number, shared.offset);
          !first && other->second != shared.offset) {
        return Wrong(shared.name, rank.rank,
                     "is tied to another tensor on other ranks, and not here");
      }
      if (number == wholes_.size()) wholes_.push_back({shared.name, sizes, shared.dtype, {}, {}});
      Whole& whole = wholes_[number];
      if (whole.sizes != sizes || whole.dtype != shared.dtype) {
        return Wrong(shared.name, rank.rank,
                     StrCat("is of shape ", SizesText(sizes), " and ", at::toString(shared.dtype),
                            ", and on other ranks of ", SizesText(whole.sizes), " and ",
                            at::toString(whole.dtype)));
      }
      PTQWATCH_ASSIGN_OR_RETURN(Part part, PartOf(shared, rank.rank, *rank.memory));
      PTQWATCH_RETURN_IF_ERROR(AddPart(std::move(part), whole));
    }
    return absl::OkStatus();
  }

  std::vector<Whole>& wholes() { return wholes_; }
  std::vector<NamedTensor> Listed() const {
    std::vector<NamedTensor> listed = listed_;
    for (NamedTensor& named : listed) {
      named.tensor = wholes_[number_.find(named.name)->second].tensor;
    }
    return listed;
  }

 private:
  std::vector<Whole> wholes_;
  std::map<std::string, size_t> number_;
  std::vector<NamedTensor> listed_;
};

}  // namespace

absl::StatusOr<WholeTensors> WholeTensors::Make(const std::vector<Rank>& ranks) {
  Collector collector;
  for (const Rank& rank : ranks) PTQWATCH_RETURN_IF_ERROR(collector.Add(rank));
  WholeTensors made;
  for (Whole& whole : collector.wholes()) {
    int64_t covered = 0;
    for (const Part& part : whole.parts) covered += part.elements();
    const int64_t elements = Product(whole.sizes);
    if (covered != elements) {
      return absl::NotFoundError(StrCat("the ranks have ", covered, " of the ", elements,
                                        " elements of '", whole.name, "'"));
    }
    whole.tensor = at::empty(whole.sizes, at::TensorOptions().dtype(whole.dtype));
    for (const Part& part : whole.parts) {
      at::Tensor to = part.flat ? whole.tensor.view({-1}) : whole.tensor;
      for (size_t i = 0; i < part.begin.size(); ++i) {
        to = to.narrow(static_cast<int64_t>(i), part.begin[i], part.sizes[i]);
      }
      made.bytes_[part.rank] += static_cast<int64_t>(part.tensor.nbytes());
      made.copies_.emplace_back(std::move(to), part.tensor);
    }
  }
  made.tensors_ = collector.Listed();
  return made;
}

void WholeTensors::Assemble() const {
  at::NoGradGuard no_grad;
  for (const auto& [to, from] : copies_) to.copy_(from);
}

}  // namespace ptqwatch::internal
