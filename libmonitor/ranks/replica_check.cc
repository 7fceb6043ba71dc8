#include "ranks/replica_check.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kRememberedSteps = 16;
constexpr size_t kNamedInMinority = 8;

std::string FirstDifference(const std::vector<ParameterDigest>& one,
                            const std::vector<ParameterDigest>& other) {
  for (size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
    if (one[i] != other[i]) return other[i].name;
  }
  return "";
}

// "2", "2, 5" or, if there are many, "2, 5, 6, 7, 8, 9, 10, 11 and 90 more".
std::string RankList(const std::vector<int64_t>& ranks) {
  const size_t named = std::min(ranks.size(), kNamedInMinority);
  std::string text =
      absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  if (named < ranks.size()) text += StrCat(" and ", ranks.size() - named, " more");
  return text;
}

std::string Difference(const ReplicaStatus& status, size_t ranks) {
  std::string text = status.minority.empty()
                         ? StrCat("the parameters of ", ranks, " ranks differ, without a majority,")
                         : StrCat("the parameters of rank ", status.minority,
                                  " differ from those of most of ", ranks, " ranks");
  text += StrCat(" at step ", status.compared_step);
  if (!status.parameter.empty()) text += StrCat(", first in ", Quoted(status.parameter));
  return text;
}

}  // namespace

ReplicaCheck::Step& ReplicaCheck::Remember(int64_t step, std::vector<Part> parts) {
  auto at = std::find_if(steps_.begin(), steps_.end(),
                         [step](const Step& known) { return known.step == step; });
  if (at == steps_.end()) {
    if (steps_.size() == kRememberedSteps) steps_.pop_front();
    steps_.push_back({.step = step, .digests = {}, .parameters = {}});
    at = steps_.end() - 1;
  }
  for (Part& part : parts) {
    if (part.digest.empty()) continue;
    at->parameters.try_emplace(part.digest, std::move(part.parameters));
    at->digests[part.rank] = std::move(part.digest);
  }
  return *at;
}

std::optional<Event> ReplicaCheck::Differ(const Step& at) {
  std::map<std::string, std::vector<int64_t>> groups;  // of ranks, by digest
  for (const auto& [rank, digest] : at.digests) groups[digest].push_back(rank);
  auto most = groups.begin();
  for (auto group = groups.begin(); group != groups.end(); ++group) {
    const size_t size = group->second.size(), largest = most->second.size();
    // The lowest rank decides between groups of one size.
    if (size > largest || (size == largest && group->second < most->second)) most = group;
  }
  std::vector<int64_t> others;
  for (const auto& [digest, ranks] : groups) {
    if (digest != most->first) others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::sort(others.begin(), others.end());
  const bool majority = 2 * most->second.size() > at.digests.size();
  const ReplicaStatus before = status_;
  status_.compared_step = at.step;
  status_.diverged = true;
  if (!before.diverged) status_.diverged_step = at.step;
  status_.minority = majority ? RankList(others) : "";
  status_.parameter = FirstDifference(at.parameters.at(most->first),
                                      at.parameters.at(at.digests.at(others.front())));
  suspects_ = others;
  if (!majority) suspects_.insert(suspects_.end(), most->second.begin(), most->second.end());
  if (before.diverged && before.minority == status_.minority) return std::nullopt;
  return Event{.kind = Event::Kind::kReplicasDiverged,
               .severity = Severity::kError,
               .step = at.step,
               .message = Difference(status_, at.digests.size())};
}

std::optional<Event> ReplicaCheck::Compare(int64_t step, std::vector<Part> parts) {
  const Step& at = Remember(step, std::move(parts));
  if (at.digests.size() < 2) return std::nullopt;
  const bool equal = std::all_of(at.digests.begin(), at.digests.end(), [&](const auto& entry) {
    return entry.second == at.digests.begin()->second;
  });
  if (!equal) return Differ(at);
  if (step < status_.compared_step) return std::nullopt;
  status_.compared_step = step;
  const bool all = std::all_of(suspects_.begin(), suspects_.end(),
                               [&](int64_t rank) { return at.digests.contains(rank); });
  // A minority must be equal to others, not only among itself.
  const bool with_others = status_.minority.empty() || at.digests.size() > suspects_.size();
  if (!status_.diverged || !all || !with_others) return std::nullopt;
  status_ = {.compared_step = step};
  return Event{.kind = Event::Kind::kReplicasDiverged,
               .severity = Severity::kInfo,
               .step = step,
               .message = StrCat("the parameters of ", at.digests.size(),
                                 " ranks are equal again at step ", step)};
}

void ReplicaCheck::BeginPass() {
  status_ = {};
  suspects_.clear();
  steps_.clear();
}

}  // namespace ptqwatch::internal
