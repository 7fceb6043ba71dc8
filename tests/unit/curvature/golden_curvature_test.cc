#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "golden/curvature_case.h"
#include "support/temp_dir.h"

namespace ptqwatch::testing {
namespace golden_curvature_test {

const char kFolder[] = PTQWATCH_SOURCE_DIR "/tests/golden/data/curvature/";

TEST(GoldenCurvature, EveryFileIsWithinItsTolerances) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const absl::StatusOr<CurvatureResult> result = CheckCurvatureFile(entry.path());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->failure, "") << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 2);
}

TEST(GoldenCurvature, AFileThatExpectsAnotherHessianFails) {
  std::ifstream in(std::string(kFolder) + "curvature_mlp_mse.safetensors", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const size_t at = bytes.find("\"trace\":\"26.14");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 14, "\"trace\":\"26.24");
  const TempDir folder;
  const std::string path = folder.File("curvature_wrong.safetensors");
  std::ofstream(path, std::ios::binary) << bytes;
  const absl::StatusOr<CurvatureResult> result = CheckCurvatureFile(path);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->failure, ::testing::HasSubstr("the trace"));
}

TEST(GoldenCurvature, ADamagedFileIsAnError) {
  const TempDir folder;
  const std::string path = folder.File("curvature_damaged.safetensors");
  std::ofstream(path) << "nothing";
  EXPECT_FALSE(CheckCurvatureFile(path).ok());
}

}  // namespace golden_curvature_test
}  // namespace ptqwatch::testing
