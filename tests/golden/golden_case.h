#ifndef PTQWATCH_TESTS_GOLDEN_GOLDEN_CASE_H_
#define PTQWATCH_TESTS_GOLDEN_GOLDEN_CASE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::testing {

/// How one case compared with its file.
struct GoldenResult {
  std::string failure;  ///< why it failed; empty when everything is within tolerance
  int64_t codes = 0;
  int64_t codes_differ = 0;
  double loss_error = 0;  ///< largest relative error among the losses
};

/// Each quantizes what a gptq_*, rtn_*, awq_*, nf4_*, llmint8_*, fp_* or gptqfp_* file holds
/// through the public interface and compares it with what the file expects. Errors: the file is
/// missing, damaged or inconsistent.
absl::StatusOr<GoldenResult> CheckGptqFile(const std::string& path);
absl::StatusOr<GoldenResult> CheckRtnFile(const std::string& path);
absl::StatusOr<GoldenResult> CheckAwqFile(const std::string& path);
absl::StatusOr<GoldenResult> CheckNf4File(const std::string& path);
absl::StatusOr<GoldenResult> CheckLlmInt8File(const std::string& path);
absl::StatusOr<GoldenResult> CheckFpFile(const std::string& path);
absl::StatusOr<GoldenResult> CheckGptqFpFile(const std::string& path);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_GOLDEN_GOLDEN_CASE_H_
