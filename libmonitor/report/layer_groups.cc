#include "report/layer_groups.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <unordered_map>

#include "absl/strings/ascii.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// "w1[3][0:64]" -> "w1[0:64]"
std::string WholeOf(std::string_view name) {
  const size_t open = name.find('[');
  if (open == std::string_view::npos) return "";
  const size_t close = name.find(']', open);
  if (close == std::string_view::npos || !IsNumber(name.substr(open + 1, close - open - 1))) {
    return "";
  }
  return StrCat(name.substr(0, open), name.substr(close + 1));
}

}  // namespace

std::string StackOf(std::string_view name) {
  if (std::string whole = WholeOf(name); !whole.empty()) return whole;
  for (size_t expert = name.find("expert"); expert != std::string_view::npos;
       expert = name.find("expert", expert + 1)) {
    const size_t begin = std::min(name.find('.', expert), name.size() - 1) + 1;
    const size_t end = std::min(name.find('.', begin), name.size());
    if (!IsNumber(name.substr(begin, end - begin))) continue;
    return StrCat(name.substr(0, begin), "*", name.substr(end));
  }
  return "";
}

std::vector<LayerGroup> GroupLayers(size_t count,
                                    const std::function<std::string_view(size_t)>& name_of) {
  std::vector<std::string> stacks(count);
  std::unordered_map<std::string_view, std::vector<size_t>> members;
  for (size_t i = 0; i < count; ++i) {
    stacks[i] = StackOf(name_of(i));
    if (!stacks[i].empty()) members[stacks[i]].push_back(i);
  }
  std::vector<LayerGroup> groups;
  for (size_t i = 0; i < count; ++i) {
    const auto stack = members.find(stacks[i]);
    if (stack == members.end() || stack->second.size() < kLeastStack) {
      groups.push_back({.name = std::string(name_of(i)), .members = {i}});
    } else if (stack->second.front() == i) {
      groups.push_back({.name = stacks[i], .members = stack->second});
    }
  }
  return groups;
}

std::vector<SkippedLayer> GroupSkipped(const std::vector<SkippedLayer>& skipped) {
  std::vector<SkippedLayer> rows;
  const auto name_of = [&](size_t i) { return std::string_view(skipped[i].name); };
  for (const LayerGroup& group : GroupLayers(skipped.size(), name_of)) {
    std::map<std::string_view, int64_t> parameters;
    for (const size_t member : group.members) {
      parameters[skipped[member].reason] += skipped[member].parameters;
    }
    for (const auto& [reason, sum] : parameters) {
      rows.push_back({group.name, std::string(reason), sum});
    }
  }
  return rows;
}

std::vector<size_t> LargestMembers(const LayerGroup& group,
                                   const std::function<double(size_t)>& value_of) {
  std::vector<size_t> members;
  for (const size_t member : group.members) {
    if (std::isfinite(value_of(member))) members.push_back(member);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](size_t a, size_t b) { return value_of(a) > value_of(b); });
  members.resize(std::min(members.size(), kNamedOfStack));
  return members;
}

}  // namespace ptqwatch::internal
