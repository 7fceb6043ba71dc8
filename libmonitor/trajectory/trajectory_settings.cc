#include "trajectory/trajectory_settings.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "base/atomic_file.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

std::string DescribeTokens(const TokenSequences& sequences) {
  Digest digest;
  digest.AddBytes(sequences.tokens.data(), sequences.tokens.size() * sizeof(int64_t));
  return StrFormat("%d sequences of %d, %s", sequences.sequences(), sequences.length, digest.Hex());
}

std::string DescribeCurvature(const CurvatureOptions& options) {
  if (!options.enabled) return "off";
  return StrFormat("%s, residual %g, %d top, bottom %d, trace %g, parameters %s",
                   ToString(options.scope), options.eigenvalue_residual_ratio,
                   options.top_eigenvalues, options.bottom_eigenvalue,
                   options.trace_relative_stderr, absl::StrJoin(options.parameters, " "));
}

}  // namespace

std::string TrajectorySettings::Fingerprint() const {
  Digest digest;
  for (const auto& [name, value] : values) {
    digest.Add(name);
    digest.Add(value);
  }
  return digest.Hex();
}

TrajectorySettings MakeSettings(const std::string& architecture, const TokenSequences& probe,
                                const TokenSequences& calibration, const std::string& tasks,
                                absl::Span<const QuantizerSpec> quantizers,
                                absl::Span<const SpecOverride> overrides,
                                const CurvatureOptions& curvature, double noise, uint64_t seed) {
  std::vector<std::string> specs;
  for (const QuantizerSpec& spec : quantizers) specs.push_back(Describe(spec));
  for (const SpecOverride& given : overrides) {
    specs.push_back(StrCat(given.of, ":", given.layers, "=", Describe(given.spec)));
  }
  return {.values = {{"model", architecture},
                     {"probe tokens", DescribeTokens(probe)},
                     {"calibration tokens", DescribeTokens(calibration)},
                     {"tasks", tasks},
                     {"quantizers", absl::StrJoin(specs, "; ")},
                     {"curvature", DescribeCurvature(curvature)},
                     {"noise", StrCat(noise)},
                     {"seed", StrCat(seed)}}};
}

absl::Status KeepSettings(const std::string& run_dir, const TrajectorySettings& settings) {
  const std::string path = StrCat(run_dir, "/", kSettingsFileName);
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (absl::IsNotFound(text.status())) {
    nlohmann::ordered_json kept;
    for (const auto& [name, value] : settings.values) kept[name] = value;
    PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, 0600));
    PTQWATCH_RETURN_IF_ERROR(file.Append(StrCat(kept.dump(1), "\n")));
    return file.Commit();
  }
  PTQWATCH_RETURN_IF_ERROR(text.status());
  const auto kept = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!kept.is_object()) {
    return absl::FailedPreconditionError(StrCat(Quoted(path), " is not a JSON object"));
  }
  std::string differences;
  for (const auto& [name, value] : settings.values) {
    const auto found = kept.find(name);
    const std::string before =
        found != kept.end() && found->is_string() ? found->get<std::string>() : "unknown";
    if (before == value) continue;
    differences +=
        StrCat(differences.empty() ? "" : "; ", name, " was '", before, "' and is '", value, "'");
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("run directory ", Quoted(run_dir),
                                              " has a trajectory with other settings, whose "
                                              "numbers are not comparable: ",
                                              differences,
                                              "; give this one a directory of its own"));
}

}  // namespace ptqwatch::internal
