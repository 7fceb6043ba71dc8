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

class GoldenFile;

/// Quantizes the contents of a file through the public interface and compares the result with the
/// expected one in the file. Errors: the file is damaged or inconsistent.
using GoldenCheck = absl::StatusOr<GoldenResult>(const GoldenFile& file);
/// For the files gptq_*, rtn_*, awq_*, nf4_*, llmint8_*, fp_* and gptqfp_*.
GoldenCheck CheckGptq, CheckRtn, CheckAwq, CheckNf4, CheckLlmInt8, CheckFp, CheckGptqFp;

/// Reads the file and checks it. Errors begin with the path.
absl::StatusOr<GoldenResult> CheckFile(const std::string& path, GoldenCheck* check);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_GOLDEN_GOLDEN_CASE_H_
