#include "char_training.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "gmock/gmock.h"
#include "program.h"
#include "ptqwatch/subject.h"
#include "support/temp_dir.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace char_training_test {

using ::testing::HasSubstr;

class CharTrainingTest : public ::testing::Test {
 protected:
  CharTrainingTest() {
    at::set_num_threads(1);  // threads that wait for each other are slow on a busy machine
    std::string text;
    for (int i = 0; i < 400; ++i) text += std::to_string(i * i) + " is a square\n";
    flags_.trainer.text = directory_.File("text");
    testing::WriteFile(flags_.trainer.text, text);
    flags_.mlp = true;
    flags_.width = 16;
    flags_.length = 8;
    flags_.batch = 4;
    flags_.probe_sequences = 8;
    flags_.calibration_sequences = 8;
  }

  std::unique_ptr<CharTraining> Trained(int steps, double sam_rho = 0) {
    auto training = std::make_unique<CharTraining>(flags_);
    for (int step = 0; step < steps; ++step) training->Step(1e-2, sam_rho);
    return training;
  }
  static std::string Hash(CharTraining& training) { return WeightsSha256(training.model()); }

  testing::TempDir directory_;
  CharGptFlags flags_;
};

TEST_F(CharTrainingTest, ContinuesFromItsStateWithTheSameBits) {
  const std::string state = directory_.File("state.safetensors");
  std::string hashes[3];
  for (const int kind : {0, 1, 2}) {
    flags_.muon = kind == 1;
    flags_.mlp = kind != 2;
    flags_.experts = kind == 2 ? 4 : 0;
    const auto first = Trained(3);
    ASSERT_TRUE(first->SaveState(state).ok());
    CharTraining second(flags_);
    ASSERT_TRUE(second.LoadState(state).ok());
    for (CharTraining* training : {first.get(), &second}) {
      for (int step = 0; step < 3; ++step) training->Step(1e-2, /*sam_rho=*/0.1);
    }
    EXPECT_EQ(Hash(*first), Hash(second)) << kind;
    hashes[kind] = Hash(*first);
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST_F(CharTrainingTest, RefusesTheStateOfAnotherOptimizer) {
  const std::string state = directory_.File("state.safetensors");
  ASSERT_TRUE(Trained(1)->SaveState(state).ok());
  flags_.muon = true;
  const absl::Status status = CharTraining(flags_).LoadState(state);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("linear_0.weight.momentum_buffer"));
}

TEST_F(CharTrainingTest, ASharpnessAwareStepIsAnother) {
  EXPECT_EQ(Hash(*Trained(2)), Hash(*Trained(2)));
  EXPECT_NE(Hash(*Trained(2)), Hash(*Trained(2, /*sam_rho=*/0.1)));
}

TEST_F(CharTrainingTest, NamesTheOptimizer) {
  for (const bool muon : {false, true}) {
    flags_.muon = muon;
    const auto training = Trained(1);
    const auto optimizer = training->MakeSubject()->Optimizer();
    ASSERT_TRUE(optimizer) << muon;
    EXPECT_EQ(optimizer->kind, muon ? OptimizerKind::kMuon : OptimizerKind::kAdamW);
  }
}

TEST_F(CharTrainingTest, MuonLowersTheLoss) {
  flags_.muon = true;
  EXPECT_LT(Trained(40)->ValidationLoss(), 0.8 * Trained(0)->ValidationLoss());
}

TEST(CharGptFlags, BeginsSharpnessAwareStepsWithTheDecay) {
  const auto parse = [](std::vector<const char*> words) {
    words.insert(words.begin(), "char_gpt");
    return ParseCharGptFlags(static_cast<int>(words.size()), const_cast<char**>(words.data()), "");
  };
  const CharGptFlags flags = parse({"--steps", "100", "--sam-rho", "0.05", "--optimizer", "muon"});
  EXPECT_TRUE(flags.muon);
  EXPECT_EQ(flags.SamRho(79), 0);
  EXPECT_EQ(flags.SamRho(80), 0.05);
  EXPECT_EQ(parse({"--sam-rho", "0.05", "--schedule", "cosine"}).SamRho(0), 0.05);
  EXPECT_EQ(parse({"--sam-rho", "0.05", "--sam-from", "7"}).SamRho(6), 0);
  EXPECT_EQ(parse({"--steps", "100"}).SamRho(99), 0);
  try {
    parse({"--sam-from", "7"});
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--sam-from: 7 needs --sam-rho"));
  }
}

}  // namespace char_training_test
}  // namespace ptqwatch::examples
