// Replica's parts of parameters, which are entries of their own.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

int Replica::AddPart(int parameter, int64_t first, std::vector<int64_t> sizes, std::string name) {
  int64_t elements = 1;
  for (int64_t size : sizes) elements *= size;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.parameter == parameter && part.first == first && part.sizes == sizes) {
      return static_cast<int>(table_.entries.size() + i);
    }
  }
  parts_.push_back({parameter, first, elements, std::move(sizes), std::move(name)});
  return static_cast<int>(table_.entries.size() + parts_.size()) - 1;
}

const Replica::Part* Replica::PartAt(int entry) const {
  const auto number = static_cast<size_t>(entry);
  return number < table_.entries.size() ? nullptr : &parts_[number - table_.entries.size()];
}

int Replica::ParameterOf(int entry) const {
  const Part* part = PartAt(entry);
  return part == nullptr ? entry : part->parameter;
}

const std::string& Replica::name(int entry) const {
  const Part* part = PartAt(entry);
  return part == nullptr ? table_.entries[static_cast<size_t>(entry)].name : part->name;
}

int64_t Replica::first_element(int entry) const {
  const Part* part = PartAt(entry);
  return part == nullptr ? 0 : part->first;
}

std::vector<Replica::Piece> Replica::PiecesOf(int parameter) const {
  std::map<int64_t, const Part*> in_order;
  for (const Part& part : parts_) {
    if (part.parameter == parameter) in_order.emplace(part.first, &part);
  }
  std::vector<Piece> pieces;
  if (in_order.empty()) return pieces;
  int64_t end = 0;
  const auto fill = [&](int64_t until) {
    if (until > end) pieces.emplace_back(StrCat(name(parameter), " (rest)"), until - end);
  };
  for (const auto& [first, part] : in_order) {
    fill(first);
    pieces.emplace_back(part->name, part->elements);
    end = first + part->elements;
  }
  fill(loaded(parameter).numel());
  return pieces;
}

at::Tensor Replica::Working(int entry) const {
  const Part* part = PartAt(entry);
  if (part == nullptr) return table_.entries[static_cast<size_t>(entry)].tensor;
  return table_.entries[static_cast<size_t>(part->parameter)]
      .tensor.view({-1})
      .narrow(0, part->first, part->elements)
      .view(part->sizes);
}

at::Tensor Replica::loaded(int entry) const {
  const Part* part = PartAt(entry);
  if (part == nullptr) return loaded_[static_cast<size_t>(entry)];
  return loaded_[static_cast<size_t>(part->parameter)]
      .reshape({-1})
      .narrow(0, part->first, part->elements)
      .view(part->sizes);
}

}  // namespace ptqwatch::internal
