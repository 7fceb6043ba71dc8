// golden_check DIR: runs every golden case below DIR and says how it compares. Exit status: 0 all
// passed and there was one at least, 1 a case failed or there was none, 2 DIR cannot be used.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "golden/golden_case.h"
#ifdef PTQWATCH_GOLDEN_CURVATURE
#include "golden/curvature_case.h"
#endif

namespace {

namespace fs = std::filesystem;
using ptqwatch::testing::GoldenResult;

constexpr std::string_view kSuffix = ".safetensors";

// The numbers of a case that passed, or why it failed.
struct Outcome {
  std::string failure;
  std::string numbers;
};

template <ptqwatch::testing::GoldenCheck* kCheck>
absl::StatusOr<Outcome> Quantized(const std::string& path) {
  const absl::StatusOr<GoldenResult> result = ptqwatch::testing::CheckFile(path, kCheck);
  if (!result.ok()) return result.status();
  return Outcome{result->failure,
                 absl::StrFormat("codes_differ=%d/%d loss_rel=%.1e", result->codes_differ,
                                 result->codes, result->loss_error)};
}

#ifdef PTQWATCH_GOLDEN_CURVATURE
absl::StatusOr<Outcome> Curvature(const std::string& path) {
  const auto result = ptqwatch::testing::CheckCurvatureFile(path);
  if (!result.ok()) return result.status();
  return Outcome{
      result->failure,
      absl::StrFormat("f64: g=%.0e Hv=%.0e trace=%.0e f32: g=%.0e Hv=%.0e fd=%.0e "
                      "lambda_max=%.0e (%d products) lambda_min=%.0e hutchinson=%.1f se",
                      result->gradient64, result->product64, result->trace64, result->gradient32,
                      result->product32, result->finite_difference32, result->lambda_max,
                      result->products, result->lambda_min, result->hutchinson_sigmas)};
}
#else
constexpr absl::StatusOr<Outcome> (*Curvature)(const std::string& path) = nullptr;
#endif

struct Kind {
  std::string_view prefix;
  absl::StatusOr<Outcome> (*check)(const std::string& path);  // null: not built in
};

constexpr Kind kKinds[] = {
    {"gptq_", &Quantized<&ptqwatch::testing::CheckGptq>},
    {"rtn_", &Quantized<&ptqwatch::testing::CheckRtn>},
    {"awq_", &Quantized<&ptqwatch::testing::CheckAwq>},
    {"nf4_", &Quantized<&ptqwatch::testing::CheckNf4>},
    {"llmint8_", &Quantized<&ptqwatch::testing::CheckLlmInt8>},
    {"fp_", &Quantized<&ptqwatch::testing::CheckFp>},
    {"gptqfp_", &Quantized<&ptqwatch::testing::CheckGptqFp>},
    {"curvature_", Curvature},
};

struct Counts {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
};

void RunCase(const fs::path& path, Counts* counts) {
  const std::string file = path.filename().string();
  const std::string name = file.substr(0, file.size() - kSuffix.size());
  const Kind* const end = std::end(kKinds);
  const Kind* const kind = std::find_if(std::begin(kKinds), end,
                                        [&](const Kind& k) { return name.starts_with(k.prefix); });
  if (kind == end || kind->check == nullptr) {
    std::printf("skipped %s (%s)\n", name.c_str(), kind == end ? "unknown kind" : "not built in");
    ++counts->skipped;
    return;
  }
  const absl::StatusOr<Outcome> result = kind->check(path.string());
  if (!result.ok()) {
    std::printf("FAILED %s: %s\n", name.c_str(), std::string(result.status().message()).c_str());
    ++counts->failed;
  } else if (!result->failure.empty()) {
    std::printf("FAILED %s: %s\n", name.c_str(), result->failure.c_str());
    ++counts->failed;
  } else {
    std::printf("ok %s %s\n", name.c_str(), result->numbers.c_str());
    ++counts->passed;
  }
}

int Unusable(const std::string& path, const std::string& why) {
  std::fprintf(stderr, "golden_check: %s: %s\n", path.c_str(), why.c_str());
  return 2;
}

int Run(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return Unusable(folder, error ? error.message() : "not a folder");
  }
  std::vector<fs::path> cases;
  fs::recursive_directory_iterator walk(folder, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    std::error_code ignored;
    const bool regular = walk->is_regular_file(ignored);
    if (regular && walk->path().filename().string().ends_with(kSuffix))
      cases.push_back(walk->path());
  }
  if (error) return Unusable(folder, error.message());
  std::sort(cases.begin(), cases.end());

  Counts counts;
  for (const fs::path& path : cases) RunCase(path, &counts);
  if (counts.skipped > 0) std::printf("%d of a kind that is not built in\n", counts.skipped);
  std::printf("%d passed, %d failed\n", counts.passed, counts.failed);
  return counts.failed == 0 && counts.passed > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: golden_check DIR\n");
    return 2;
  }
  try {
    return Run(argv[1]);
  } catch (const std::exception& error) {
    return Unusable(argv[1], error.what());
  }
}
