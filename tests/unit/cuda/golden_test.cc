// The reference numbers of tests/golden, on a device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "golden/golden_compare.h"
#include "golden/golden_file.h"
#include "support/device_run.h"

namespace ptqwatch {
namespace golden_test {

using internal::DeviceRows;
using testing::DeviceRun;
using testing::GoldenFile;
using testing::GoldenMatrix;
using testing::Matrix;

// A program that was built elsewhere is told.
std::string DataFolder() {
  const char* folder = std::getenv("PTQWATCH_GOLDEN_DATA");
  return folder == nullptr ? PTQWATCH_GOLDEN_DATA : folder;
}

Matrix ToMatrix(const GoldenMatrix& golden) {
  Matrix matrix(golden.rows, golden.cols);
  matrix.values = golden.values;
  return matrix;
}

void ExpectLoss(const GoldenFile& file, const char* name, std::optional<double> got) {
  ASSERT_TRUE(got.has_value()) << name;
  const double expected = *file.Number(name);
  EXPECT_NEAR(*got, expected, 1e-3 * std::abs(expected)) << name;
}

class Golden {
 public:
  Golden(const std::string& path, QuantizationMethod method, internal::ComputeDevice& device)
      : file_(*GoldenFile::Read(path)), weight_(ToMatrix(*testing::ReadMatrix(file_, "weight"))) {
    spec_.method = method;
    spec_.min_tokens_ratio = 0;
    spec_.bits = method == QuantizationMethod::kNf4 ? 4 : *file_.Integer("bits");
    if (method != QuantizationMethod::kNf4) {
      spec_.group_size = *file_.Integer("group_size");
      spec_.symmetric = *file_.Flag("symmetric");
    }
    if (method == QuantizationMethod::kGptq) {
      spec_.damp = *file_.Number("damp");
      spec_.order =
          *file_.Text("order") == "act" ? QuantizationOrder::kStaticAct : QuantizationOrder::kNone;
    }
    DeviceRun run(device);
    const internal::DeviceGram* gram = nullptr;
    if (method == QuantizationMethod::kGptq || method == QuantizationMethod::kAwq) {
      gram = file_.Has("inputs")
                 ? run.Gram(ToMatrix(*testing::ReadMatrix(file_, "inputs")))
                 : run.Gram(*testing::ReadStatistics(file_, weight_.cols, ExecutionContext()));
    }
    got_ = run.Quantize({run.Layer(weight_, gram, spec_)})[0];
  }

  const GoldenFile& file() const { return file_; }
  const QuantizedWeight& got() const { return got_; }

  void ExpectGrid() const {
    const int64_t group = spec_.group_size < 0 ? weight_.cols : spec_.group_size;
    const int64_t groups = (weight_.cols + group - 1) / group;
    EXPECT_EQ(got_.scale, *file_.Floats("scale", {weight_.rows, groups}));
    EXPECT_EQ(got_.zero, *file_.Floats("zero", {weight_.rows, groups}));
  }
  template <typename T>
  void ExpectCodes(const std::vector<T>& expected) const {
    ASSERT_EQ(got_.codes.size(), expected.size());
    size_t differ = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      differ += static_cast<int>(got_.codes[i]) != static_cast<int>(expected[i]) ? 1 : 0;
    }
    EXPECT_LE(static_cast<double>(differ), 0.003 * static_cast<double>(expected.size()));
  }
  std::vector<int64_t> Shape() const { return {weight_.rows, weight_.cols}; }

 private:
  GoldenFile file_;
  Matrix weight_;
  QuantizerSpec spec_;
  QuantizedWeight got_;
};

std::vector<std::string> FilesOf(const char* folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(DataFolder() + "/" + folder)) {
    paths.push_back(entry.path().string());
  }
  EXPECT_FALSE(paths.empty()) << folder;
  return paths;
}

TEST(DeviceGolden, Gptq) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const std::string& path : FilesOf("gptq")) {
    SCOPED_TRACE(path);
    const Golden golden(path, QuantizationMethod::kGptq, *device);
    golden.ExpectGrid();
    golden.ExpectCodes(*golden.file().Int32s("codes", golden.Shape()));
    for (const auto& [name, got] : {std::pair{"loss", golden.got().loss},
                                    {"loss_damped", golden.got().loss_damped},
                                    {"rtn_loss", golden.got().rtn_loss}}) {
      ExpectLoss(golden.file(), name, got);
    }
  }
}

TEST(DeviceGolden, Rtn) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const std::string& path : FilesOf("rtn")) {
    SCOPED_TRACE(path);
    const Golden golden(path, QuantizationMethod::kRtn, *device);
    golden.ExpectGrid();
    golden.ExpectCodes(*golden.file().Int32s("codes", golden.Shape()));
  }
}

TEST(DeviceGolden, Awq) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const std::string& path : FilesOf("awq")) {
    SCOPED_TRACE(path);
    const Golden golden(path, QuantizationMethod::kAwq, *device);
    golden.ExpectCodes(*golden.file().Int32s("codes", golden.Shape()));
    EXPECT_EQ(golden.got().channel_scale_ratio, *golden.file().Number("ratio"));
    ExpectLoss(golden.file(), "loss", golden.got().loss);
    ExpectLoss(golden.file(), "rtn_loss", golden.got().rtn_loss);
  }
}

TEST(DeviceGolden, Nf4) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const std::string& path : FilesOf("nf4")) {
    SCOPED_TRACE(path);
    const Golden golden(path, QuantizationMethod::kNf4, *device);
    golden.ExpectCodes(*golden.file().Uint8s("codes", golden.Shape()));
  }
}

}  // namespace golden_test
}  // namespace ptqwatch
