#include "models/expert_reader.h"

#include <gmock/gmock.h>

#include <string>

#include "ATen/ops/cat.h"
#include "ATen/ops/ones.h"
#include "models/decoder.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace expert_reader_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Logits;
using testing::ParsedTinyConfig;
using testing::RandomTokens;
using testing::RandomWeights;

constexpr std::string_view kExperts = "model.layers.1.mlp.experts.";

// The same tensors with those of each expert under names of its own.
MapReader::Tensors OneByOne(const MapReader::Tensors& stacked, int64_t experts) {
  MapReader::Tensors tensors;
  for (const auto& [name, tensor] : stacked) {
    const size_t end = name.find("experts.");
    if (end == std::string::npos) {
      tensors[name] = tensor;
      continue;
    }
    for (int64_t expert = 0; expert < experts; ++expert) {
      const std::string own = name.substr(0, end) + "experts." + std::to_string(expert) + ".";
      const at::Tensor matrix = tensor.select(0, expert);
      if (name.ends_with("down_proj")) {
        tensors[own + "down_proj.weight"] = matrix;
        continue;
      }
      tensors[own + "gate_proj.weight"] = matrix.chunk(2)[0];
      tensors[own + "up_proj.weight"] = matrix.chunk(2)[1];
    }
  }
  return tensors;
}

class ExpertReaderTest : public ::testing::Test {
 protected:
  const ModelConfig config_ = ParsedTinyConfig("olmoe");
  const MapReader::Tensors stacked_ = RandomWeights(config_);
  MapReader::Tensors apart_ = OneByOne(stacked_, 5);

  std::string Refusal() const {
    const MapReader reader(apart_);
    const absl::Status status = Decoder::Create(config_, reader).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
};

TEST_F(ExpertReaderTest, StacksExpertsThatAreStoredOneByOne) {
  const MapReader stacked(stacked_);
  const MapReader apart(apart_);
  EXPECT_GT(apart_.size(), stacked_.size());
  const Decoder expected = Decoder::Create(config_, stacked).value();
  const Decoder decoder = Decoder::Create(config_, apart).value();
  EXPECT_EQ(decoder.TensorNames(), expected.TensorNames());
  EXPECT_EQ(decoder.parameters(), expected.parameters());
  for (const std::string& name : decoder.TensorNames()) {
    EXPECT_TRUE(decoder.weights().Read(name).value().equal(stacked_.at(name))) << name;
  }
  const at::Tensor tokens = RandomTokens(2, 9, 37);
  EXPECT_TRUE(Logits(decoder, tokens).equal(Logits(expected, tokens)));
}

TEST_F(ExpertReaderTest, ReadsTheExpertsThatRowsName) {
  const MapReader apart(apart_);
  const auto reader = ExpertReader::Create(config_, apart).value();
  for (const char* stack : {"gate_up_proj", "down_proj"}) {
    const std::string name = std::string(kExperts) + stack;
    const at::Tensor rows = reader->ReadRows(name, {3, 0}).value();
    EXPECT_TRUE(rows.equal(at::cat({stacked_.at(name).narrow(0, 3, 1),  //
                                    stacked_.at(name).narrow(0, 0, 1)})));
  }
}

TEST_F(ExpertReaderTest, LeavesOtherCheckpointsAlone) {
  const MapReader stacked(stacked_);
  EXPECT_EQ(ExpertReader::Create(config_, stacked).value(), nullptr);
  const ModelConfig dense = ParsedTinyConfig("llama");
  const MapReader apart(apart_);
  EXPECT_EQ(ExpertReader::Create(dense, apart).value(), nullptr);
}

TEST_F(ExpertReaderTest, NamesAMatrixThatIsMissingLeftOverOrOfAnotherShape) {
  const std::string name = std::string(kExperts) + "3.up_proj.weight";
  apart_[name] = at::ones({5, 7});
  EXPECT_THAT(Refusal(), HasSubstr("'" + name + "' is not a matrix of the shape of"));
  apart_.erase(name);
  EXPECT_THAT(Refusal(), HasSubstr("'" + name + "' is missing, one of 1 matrices"));
  apart_ = OneByOne(stacked_, 5);
  apart_[std::string(kExperts) + "5.up_proj.weight"] = at::ones({24, 32});
  EXPECT_THAT(Refusal(), HasSubstr("experts.5.up_proj.weight' is left over"));
  for (auto it = apart_.begin(); it != apart_.end();) {
    it = it->first.starts_with(kExperts) ? apart_.erase(it) : std::next(it);
  }
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("gate_up_proj' [5, 48, 32] is missing"),
                               HasSubstr("down_proj' [5, 32, 24] is missing")));
}

}  // namespace expert_reader_test
}  // namespace ptqwatch::internal
