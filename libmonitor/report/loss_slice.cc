#include "ptqwatch/loss_slice.h"

#include <cmath>

#include "nlohmann/json.hpp"

namespace ptqwatch {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Point(const SlicePoint& point) {
  return {{"x", Number(point.x)}, {"y", Number(point.y)}, {"loss_nats", Number(point.loss_nats)}};
}

}  // namespace

std::string ToJson(const LossSlice& slice) {
  Json json;
  json["schema_version"] = slice.schema_version;
  json["run_id"] = slice.run_id;
  json["fingerprint"] = slice.fingerprint;
  json["step"] = slice.step;
  json["previous_step"] = slice.previous_step;
  json["method"] = ToString(slice.method);
  json["bits"] = slice.bits;
  if (slice.format) json["format"] = *slice.format;
  json["group_size"] = slice.group_size;
  json["weight_norm"] = Number(slice.weight_norm);
  json["parameters"] = slice.parameters;
  json["batch_tokens"] = slice.batch_tokens;
  json["current"] = Point(slice.current);
  json["previous"] = Point(slice.previous);
  json["quantized"] = Point(slice.quantized);
  json["x"] = slice.x;
  json["y"] = slice.y;
  Json& rows = json["loss_nats"] = Json::array();
  for (const std::vector<double>& row : slice.loss_nats) {
    Json& cells = rows.emplace_back(Json::array());
    for (double loss : row) cells.push_back(Number(loss));
  }
  json["loss_evaluations"] = slice.loss_evaluations;
  json["seconds"] = Number(slice.seconds);
  // Names come from the trainer and may contain invalid UTF-8, which becomes U+FFFD.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ptqwatch
