// Every member of RunStatus is in each of its forms: JSON, protobuf, metrics and text.

#include "report/status_fields.h"

#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/metric_catalog.h"
#include "report/status_json.h"
#include "status_proto.h"
#include "status_text.h"

namespace ptqwatch::internal {
namespace status_fields_test {

using google::protobuf::Message;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A value that is no default, and another one for each `n`.
void Set(bool& value, int n) { value = n % 2 == 1; }
void Set(int& value, int n) { value = 100 + n; }
// Bytes are shown in MB.
void Set(int64_t& value, int n) { value = int64_t{1'000'000} * (100 + n); }
void Set(double& value, int n) { value = 100.5 + n; }
void Set(std::string& value, int n) { value = StrCat("text", n); }
template <typename Enum>
requires std::is_enum_v<Enum>
void Set(Enum& value, int n) { value = static_cast<Enum>(1 + n % 2); }
template <typename T>
void Set(std::optional<T>& value, int n) {
  Set(value.emplace(), n);
}
template <size_t kCount>
void Set(std::array<int64_t, kCount>& values, int n) {
  for (size_t i = 0; i < kCount; ++i) values[i] = 1000 * n + static_cast<int64_t>(i) + 1;
}
void Set(std::vector<DroppedReports>& drops, int n) {
  drops = {{StrCat("exporter", n), StrCat("reason", n), n + 1}};
}

void Set(std::vector<RankStatus>& ranks, int n) {
  ranks = {{n, n % 2 == 1 ? Health::kOk : Health::kDegraded, StrCat("reason", n), n + 1, n + 2}};
}

// Sets each leaf to a value of its own, or one leaf to another value.
class Setter {
 public:
  explicit Setter(std::function<void(const std::string&, std::function<void(int)>)> at_leaf,
                  std::string prefix = "")
      : at_leaf_(std::move(at_leaf)), prefix_(std::move(prefix)) {}

  template <typename T>
  void operator()(const std::string& key, T& value) const {
    if constexpr (requires { Set(value, 1); }) {
      at_leaf_(prefix_ + key, [&value](int n) { Set(value, n); });
    } else {
      VisitFields(value, Setter(at_leaf_, prefix_ + key + "."));
    }
  }

 private:
  const std::function<void(const std::string&, std::function<void(int)>)> at_leaf_;
  const std::string prefix_;
};

RunStatus AllSet() {
  RunStatus status;
  int n = 0;
  VisitFields(status, Setter([&](const std::string&, auto set) { set(2 * ++n + 1); }));
  return status;
}

std::vector<std::string> Leaves() {
  std::vector<std::string> names;
  RunStatus status;
  VisitFields(status, Setter([&](const std::string& name, auto) { names.push_back(name); }));
  return names;
}

void ChangeLeaf(const std::string& wanted, RunStatus& status) {
  VisitFields(status, Setter([&](const std::string& name, auto set) {
                if (name == wanted) set(500);
              }));
}

// The leaves that do not show in `form`, whatever slice and cooldown are at.
std::vector<std::string> LeavesMissingFrom(
    const std::function<std::string(const RunStatus&)>& form) {
  std::vector<std::string> missing;
  for (const std::string& leaf : Leaves()) {
    bool shows = false;
    for (int state = 1; state <= static_cast<int>(SliceState::kFailed) && !shows; ++state) {
      RunStatus status = AllSet();
      status.monitor.slice.state = static_cast<SliceState>(state);
      status.monitor.cooldown.state = static_cast<CooldownState>(std::min(state, 4));
      RunStatus changed = status;
      ChangeLeaf(leaf, changed);
      shows = form(status) != form(changed);
    }
    if (!shows) missing.push_back(leaf);
  }
  return missing;
}

// Fields that are not set in a message whose every field should be.
void AddUnset(const Message& message, const std::string& prefix, std::vector<std::string>* unset) {
  const auto& reflection = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const auto* field = type.field(i);
    const bool set = field->is_repeated() ? reflection.FieldSize(message, field) > 0
                                          : reflection.HasField(message, field);
    if (!set) unset->push_back(prefix + field->name());
    if (field->message_type() == nullptr || field->is_map() || !set) continue;
    AddUnset(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, 0)
                                  : reflection.GetMessage(message, field),
             prefix + field->name() + ".", unset);
  }
}

std::string Metrics(const RunStatus& status) {
  std::string text;
  for (const MetricInfo& metric : MetricCatalog()) {
    for (const MetricSample& sample :
         metric.collect({status.run, status.monitor, nullptr, status.time_unix_seconds})) {
      text += metric.name;
      for (const std::string& label : sample.labels) text += StrCat(" ", label);
      text += StrFormat(" %f\n", sample.value);
    }
  }
  return text;
}

TEST(StatusFields, AllOfThemAreWalked) {
  EXPECT_GT(Leaves().size(), 55u);
  const std::vector<std::string> leaves = Leaves();
  EXPECT_EQ(std::set<std::string>(leaves.begin(), leaves.end()).size(), leaves.size());
  EXPECT_EQ(MembersOf(AllSet()).size(), leaves.size());
}

TEST(StatusFields, AreInTheStatusFile) {
  EXPECT_THAT(LeavesMissingFrom(StatusJson), IsEmpty());
  const auto read = StatusFromJson(StatusJson(AllSet()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(StatusJson(*read), StatusJson(AllSet()));
}

TEST(StatusFields, AreInTheMessage) {
  EXPECT_THAT(LeavesMissingFrom([](const RunStatus& status) {
                v1::GetStatusResponse message;
                ToProto(status, &message);
                return message.DebugString();
              }),
              IsEmpty());
  v1::GetStatusResponse message;
  ToProto(AllSet(), &message);
  std::vector<std::string> unset;
  AddUnset(message, "", &unset);
  EXPECT_THAT(unset, IsEmpty());
  EXPECT_EQ(StatusJson(FromProto(message)), StatusJson(AllSet()));
}

TEST(StatusFields, AreInTheText) {
  EXPECT_THAT(LeavesMissingFrom([](const RunStatus& status) { return StatusBlock(status, 1'000); }),
              // A format that is no integer says the bits.
              ElementsAre("status.slice.request.bits"));
}

TEST(StatusFields, AreInTheMetrics) {
  const std::vector<std::string> left_out = {
      // Texts for people, and facts of the process that no alert needs.
      "process_id", "host", "name", "version", "subscribers", "run.run_dir", "status.health_reason",
      // The newest report's own, and settings.
      "status.last_sequence", "status.seconds_a_step", "status.every", "status.paused",
      "status.busy",
      // How sure the overhead is.
      "status.overhead_low_ratio", "status.overhead_high_ratio", "status.overhead_comparisons",
      // A histogram, which is no scalar: metric_families_test.
      "status.stall_buckets", "status.stall_seconds_total",
      // The requests, and their results in words.
      "status.slice.number", "status.slice.request.method", "status.slice.request.bits",
      "status.slice.request.format", "status.slice.request.points", "status.slice.request.at_step",
      "status.slice.path", "status.slice.error", "status.cooldown.number",
      "status.cooldown.decay_steps", "status.cooldown.step", "status.cooldown.waits_for_core",
      "status.cooldown.result", "status.cooldown.error",
      // Its metrics are the alarm's.
      "status.replicas.compared_step",
      // The metrics are that server's.
      "status.server.state", "status.server.metrics", "status.server.grpc", "status.server.reason"};
  EXPECT_THAT(LeavesMissingFrom(Metrics), ::testing::UnorderedElementsAreArray(left_out));
}

}  // namespace status_fields_test
}  // namespace ptqwatch::internal
