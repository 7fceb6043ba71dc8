#include "results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "ptqwatch/config.h"

namespace ptqwatch::examples {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSmokeTest[] =
    "This was a smoke test of the machinery: too short, and too few seeds, to be evidence.";

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json PointJson(const Point& point) {
  Json json = {{"step", point.step},
               {"learning_rate", point.learning_rate},
               {"loss_nats", Number(point.loss)}};
  for (const auto& [name, quantized] : point.quantized) {
    json[name] = {{"loss_nats", Number(quantized.loss)},
                  {"error_ratio", Number(quantized.error)},
                  {"error_ratio_stderr", Number(quantized.error_stderr)}};
  }
  json["trace"] = Number(point.trace);
  json["weighted_trace"] = Number(point.weighted_trace);
  json["top_eigenvalue"] = Number(point.top_eigenvalue);
  return json;
}

Json ClaimJson(const Claim& claim) {
  Json seeds = Json::array();
  for (const Finding& finding : claim.seeds) {
    Json numbers = Json::object();
    for (const NamedNumber& number : finding.numbers) numbers[number.name] = Number(number.value);
    seeds.push_back({{"holds", finding.holds}, {"numbers", numbers}});
  }
  return {{"id", claim.text.id},
          {"claim", claim.text.claim},
          {"paper", claim.text.paper},
          {"criterion", claim.text.criterion},
          {"measured", Summary(claim)},
          {"verdict", Verdict(claim)},
          {"seeds", seeds}};
}

/// "2/3"; empty where nothing was run.
std::string Holding(const Claim& claim) {
  if (claim.seeds.empty()) return "";
  const auto holding = std::count_if(claim.seeds.begin(), claim.seeds.end(),
                                     [](const Finding& finding) { return finding.holds; });
  return std::to_string(holding) + "/" + std::to_string(claim.seeds.size());
}

bool IsEvidence(const StudyData& data) { return data.settings.scale == "full"; }

}  // namespace

Json ResultsJson(const StudyData& data, const std::vector<Claim>& claims) {
  Json json = {{"schema", 1},
               {"ptqwatch", PTQWATCH_VERSION_STRING},
               {"evidence", IsEvidence(data)},
               {"settings", ToJson(data.settings)},
               {"claims", Json::array()},
               {"runs", Json::object()},
               {"seconds", data.seconds}};
  for (const Claim& claim : claims) json["claims"].push_back(ClaimJson(claim));
  for (const auto& [name, series] : data.runs) {
    Json points = Json::array();
    for (const Point& point : series) points.push_back(PointJson(point));
    json["runs"][name] = points;
  }
  return json;
}

std::string ResultsTable(const StudyData& data, const std::vector<Claim>& claims) {
  std::string table;
  char line[64];
  for (const Claim& claim : claims) {
    std::snprintf(line, sizeof(line), "%-20s %-14s %-5s ", claim.text.id.c_str(),
                  Verdict(claim).c_str(), Holding(claim).c_str());
    table += line + claim.text.claim + "\n";
    if (!claim.seeds.empty()) table += "    " + Summary(claim) + "\n";
  }
  if (!IsEvidence(data)) table += std::string(kSmokeTest) + "\n";
  return table;
}

std::string ResultsPage(const StudyData& data, const std::vector<Claim>& claims) {
  std::string page = "# Results of lr_decay_study\n\n";
  if (!IsEvidence(data)) page += std::string(kSmokeTest) + "\n\n";
  page +=
      "E = CE(W_hat) / CE(W) - 1 of GPTQ. Means and standard deviations over the seeds.\n\n"
      "| claim | | paper | measured | seeds | verdict |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const Claim& claim : claims) {
    page += "| " + claim.text.id + " | " + claim.text.claim + " | " + claim.text.paper + " | " +
            Summary(claim) + " | " + Holding(claim) + " | " + Verdict(claim) + " |\n";
  }
  page += "\nA claim holds where every seed shows it, and does not where none does.\n\n";
  for (const Claim& claim : claims) {
    page += "- " + claim.text.id + ": " + claim.text.criterion + "\n";
  }
  return page;
}

}  // namespace ptqwatch::examples
