#include <string>
#include <type_traits>

#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "ptqwatch/status.h"
#include "report/enum_names.h"
#include "report/status_fields.h"

namespace ptqwatch {
namespace internal {
namespace {

class MemberTexts {
 public:
  explicit MemberTexts(std::vector<StatusMember>* members, std::string prefix = "")
      : members_(members), prefix_(std::move(prefix)) {}

  template <typename T>
  void operator()(std::string_view key, const T& value) const {
    const std::string name = StrCat(prefix_, key);
    if constexpr (std::is_same_v<T, RunInfo> || std::is_same_v<T, MonitorStatus>) {
      VisitFields(value, *this);
    } else if constexpr (std::is_class_v<T> && !requires { Text(value); }) {
      VisitFields(value, MemberTexts(members_, name + "."));
    } else {
      members_->push_back({name, Text(value)});
    }
  }

 private:
  static std::string Text(const std::string& value) { return Printable(value); }
  static std::string Text(bool value) { return value ? "yes" : "no"; }
  static std::string Text(int value) { return StrCat(value); }
  static std::string Text(int64_t value) { return StrCat(value); }
  static std::string Text(double value) { return StrFormat("%.15g", value); }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  static std::string Text(Enum value) { return std::string(ToString(value)); }
  template <typename T>
  static std::string Text(const std::optional<T>& value) {
    return value ? Text(*value) : "";
  }
  template <size_t kCount>
  static std::string Text(const std::array<int64_t, kCount>& values) {
    return absl::StrJoin(values, " ");
  }
  template <typename Enum, size_t kCount>
  static std::string Text(const Counts<Enum, kCount>& counts) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < kCount; ++i) {
      if (counts[i] > 0) texts.push_back(StrCat(counts[i], " ", ToString(static_cast<Enum>(i))));
    }
    return absl::StrJoin(texts, ", ");
  }
  static std::string Text(const std::vector<DroppedReports>& drops) {
    return absl::StrJoin(drops, ", ", [](std::string* out, const DroppedReports& drop) {
      *out += StrCat(drop.count, " ", Printable(drop.exporter), " ", Printable(drop.reason));
    });
  }
  static std::string Text(const std::vector<RankStatus>& ranks) {
    return absl::StrJoin(ranks, "; ", [](std::string* out, const RankStatus& rank) {
      *out += StrCat(rank.rank, " ", ToString(rank.health), ", ", rank.reports_total, " reports");
      if (rank.snapshot_step) *out += StrCat(" up to step ", *rank.snapshot_step);
      if (!rank.health_reason.empty()) *out += StrCat(": ", Printable(rank.health_reason));
    });
  }

  std::vector<StatusMember>* const members_;
  const std::string prefix_;
};

}  // namespace
}  // namespace internal

std::vector<StatusMember> MembersOf(const RunStatus& status) {
  std::vector<StatusMember> members;
  internal::VisitFields(status, internal::MemberTexts(&members));
  return members;
}

}  // namespace ptqwatch
