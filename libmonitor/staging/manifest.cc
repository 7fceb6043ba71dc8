#include "staging/manifest.h"

#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace {

using Json = nlohmann::json;

Json RowsOf(const std::vector<SharedTensor>& tensors) {
  Json rows = Json::array();
  for (const SharedTensor& tensor : tensors) {
    rows.push_back({tensor.name, tensor.sizes, static_cast<int>(tensor.dtype), tensor.is_parameter,
                    tensor.offset, tensor.global_shape, tensor.part_offset});
  }
  return rows;
}

std::vector<SharedTensor> TensorsOf(const Json& rows) {
  std::vector<SharedTensor> tensors;
  for (const Json& row : rows) {
    tensors.push_back({row.at(0), row.at(1), static_cast<at::ScalarType>(row.at(2).get<int>()),
                       row.at(3), row.at(4), row.at(5), row.at(6)});
  }
  return tensors;
}

}  // namespace

std::string ToJson(const Manifest& manifest) {
  Json json{{"layout", RowsOf(manifest.layout)},
            {"optimizer", manifest.optimizer.offset},
            {"moments", RowsOf(manifest.optimizer.moments)},
            {"device", manifest.device},
            {"run_dir", manifest.run_dir},
            {"training_threads", manifest.training_threads},
            {"schedule", manifest.schedule},
            {"longest_silence_ms", manifest.longest_silence_ms}};
  if (manifest.shard) {
    const ShardPlace& shard = *manifest.shard;
    json["shard"] = {shard.job,         shard.directory, shard.rank,
                     shard.local_ranks, shard.host,      shard.hosts};
  }
  if (manifest.rank) json["rank"] = *manifest.rank;
  if (manifest.ranks) json["ranks"] = *manifest.ranks;
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

absl::StatusOr<Manifest> ManifestFromJson(std::string_view json) {
  try {
    const Json read = Json::parse(json);
    Manifest manifest{.layout = TensorsOf(read.at("layout")),
                      .optimizer = {read.at("optimizer"), TensorsOf(read.at("moments"))},
                      .device = read.at("device"),
                      .run_dir = read.at("run_dir"),
                      .training_threads = read.at("training_threads"),
                      .schedule = read.at("schedule"),
                      .longest_silence_ms = read.at("longest_silence_ms")};
    if (read.contains("shard")) {
      const Json& shard = read["shard"];
      manifest.shard = {shard.at(0), shard.at(1), shard.at(2),
                        shard.at(3), shard.at(4), shard.at(5)};
    }
    if (read.contains("rank")) manifest.rank = read["rank"].get<int64_t>();
    if (read.contains("ranks")) manifest.ranks = read["ranks"].get<int64_t>();
    return manifest;
  } catch (const Json::exception& error) {
    return absl::DataLossError(StrCat("the trainer's memory has no manifest: ", error.what()));
  }
}

}  // namespace ptqwatch::internal
