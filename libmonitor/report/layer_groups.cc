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

// "w1[3][0:64]" -> "w1[0:64]", by the last index.
std::string WholeOf(std::string_view name) {
  for (size_t open = name.rfind('['); open != std::string_view::npos && open > 0;
       open = name.rfind('[', open - 1)) {
    const size_t close = name.find(']', open);
    if (close == std::string_view::npos) return "";
    if (!IsNumber(name.substr(open + 1, close - open - 1))) continue;
    return StrCat(name.substr(0, open), name.substr(close + 1));
  }
  return "";
}

// The place of an expert's number in a segment of a name behind one that ends with "experts":
// "17", "expert_17" or "weight17". npos if there is none.
size_t NumberIn(std::string_view segment) {
  size_t begin = segment.size();
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(segment[begin - 1]))) --begin;
  const std::string_view before = segment.substr(0, begin);
  const bool known = before.empty() || before == "expert_" || before == "weight";
  return known && begin < segment.size() ? begin : std::string_view::npos;
}

}  // namespace

std::string StackOf(std::string_view name) {
  if (std::string whole = WholeOf(name); !whole.empty()) return whole;
  bool experts = false;  // whether a segment before ends with it
  for (size_t begin = 0, end = 0; begin < name.size(); begin = end + 1) {
    end = std::min(name.find('.', begin), name.size());
    const std::string_view segment = name.substr(begin, end - begin);
    if (experts) {
      const size_t number = NumberIn(segment);
      if (number != std::string_view::npos) {
        return StrCat(name.substr(0, begin + number), "*", name.substr(end));
      }
    }
    experts = experts || segment.ends_with("experts");
  }
  return "";
}

std::vector<GroupedLayers> GroupLayers(size_t count,
                                       const std::function<std::string_view(size_t)>& name_of) {
  std::vector<std::string> stacks(count);
  std::unordered_map<std::string_view, std::vector<size_t>> members;
  for (size_t i = 0; i < count; ++i) {
    stacks[i] = StackOf(name_of(i));
    if (!stacks[i].empty()) members[stacks[i]].push_back(i);
  }
  std::vector<GroupedLayers> groups;
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
  for (const GroupedLayers& group : GroupLayers(skipped.size(), name_of)) {
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

std::vector<size_t> LargestMembers(const GroupedLayers& group,
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
