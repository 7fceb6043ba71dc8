#include "report/status_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/metric_catalog.h"
#include "report/json_fields.h"
#include "report/status_fields.h"

namespace ptqwatch::internal {

template <Of<RunStatus> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("process_id", record.process_id);
  visit("time_unix_seconds", record.time_unix_seconds);
  visit("run", record.run);
  visit("status", record.status);
}

namespace {

// {"taken": 3, ...}: a version with other values reads the ones that it knows.
template <typename Enum, size_t kCount>
WrittenJson CountsByName(const std::array<int64_t, kCount>& counts) {
  WrittenJson object = WrittenJson::object();
  for (size_t i = 0; i < kCount; ++i) {
    object[std::string(ToString(static_cast<Enum>(i)))] = counts[i];
  }
  return object;
}

template <typename Enum, size_t kCount>
void ReadCounts(const nlohmann::json& status, const char* key, std::array<int64_t, kCount>& counts,
                absl::Status& failure) {
  const auto object = status.find(key);
  if (object == status.end()) return;
  JsonReader reader(*object, StrCat("status.", key), failure);
  for (size_t i = 0; i < kCount; ++i) {
    reader(std::string(ToString(static_cast<Enum>(i))).c_str(), counts[i]);
  }
}

struct Drop {
  std::string exporter;
  std::string reason;
  int64_t count = 0;
};

template <Of<Drop> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("exporter", record.exporter);
  visit("reason", record.reason);
  visit("count", record.count);
}

WrittenJson CountersJson(const MonitorStatus& counters) {
  WrittenJson object = *JsonWriter::Write(counters);
  object["snapshots"] = CountsByName<SnapshotResult>(counters.snapshots);
  object["events"] = CountsByName<Event::Kind>(counters.events);
  object["stall_buckets"] = counters.stall_buckets;
  WrittenJson& drops = object["dropped_reports"] = WrittenJson::array();
  for (const auto& [place, count] : counters.dropped_reports) {
    drops.push_back(*JsonWriter::Write(Drop{place.first, place.second, count}));
  }
  return object;
}

std::string Text(const WrittenJson& json) {
  return json.dump(-1, ' ', false, WrittenJson::error_handler_t::replace);
}

absl::StatusOr<RunStatus> Read(std::string_view json) {
  PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson("status JSON", json));
  PTQWATCH_ASSIGN_OR_RETURN(RunStatus status, ReadRecord<RunStatus>("status JSON", parsed));
  absl::Status failure;
  const nlohmann::json object = parsed.value("status", nlohmann::json::object());
  MonitorStatus& counters = status.status;
  ReadCounts<SnapshotResult>(object, "snapshots", counters.snapshots, failure);
  ReadCounts<Event::Kind>(object, "events", counters.events, failure);
  std::vector<int64_t> buckets;
  std::vector<Drop> drops;
  JsonReader reader(object, "status", failure);
  reader("stall_buckets", buckets);
  reader("dropped_reports", drops);
  if (!failure.ok()) return absl::InvalidArgumentError(StrCat("status JSON: ", failure));
  if (object.is_object() && !object.contains("learning_rate")) {
    counters.learning_rate = std::nan("");
  }
  std::copy_n(buckets.begin(), std::min(buckets.size(), counters.stall_buckets.size()),
              counters.stall_buckets.begin());
  for (Drop& drop : drops) {
    counters.dropped_reports[{std::move(drop.exporter), std::move(drop.reason)}] = drop.count;
  }
  return status;
}

}  // namespace

std::string StatusToJson(const RunStatus& status) {
  WrittenJson json = *JsonWriter::Write(status);
  json["status"] = CountersJson(status.status);
  return Text(json);
}

absl::StatusOr<RunStatus> StatusFromJson(std::string_view json) {
  return Guard("status JSON", absl::StatusCode::kInvalidArgument, [&] { return Read(json); });
}

}  // namespace ptqwatch::internal

namespace ptqwatch {

std::string StatusJson(const RunInfo& run, const MonitorStatus& status) {
  internal::WrittenJson json;
  json["run"] = *internal::JsonWriter::Write(run);
  json["status"] = internal::CountersJson(status);
  return internal::Text(json);
}

}  // namespace ptqwatch
