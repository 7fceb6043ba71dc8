#include "checkpoint/folder_format.h"

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace folder_format_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

// Returns the message for a folder with these files; a name that ends in '/' is a folder.
std::string TextFor(const std::vector<std::string>& names) {
  const TempDir folder;
  for (const std::string& name : names) {
    if (name.ends_with('/')) {
      std::filesystem::create_directory(folder.File(name));
    } else {
      WriteFile(folder.File(name), "x");
    }
  }
  const absl::Status status = CheckFormat(folder.path());
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder.path()));
  return std::string(status.message());
}

TEST(CheckFormat, SaysWhatAFolderHoldsAndWhatToDo) {
  const std::vector<std::tuple<std::vector<std::string>, std::string, std::string>> cases = {
      {{"adapter_config.json", "adapter_model.safetensors"}, "a PEFT adapter", "merge_and_unload"},
      {{"config.json", "pytorch_model.bin"}, "pytorch_model.bin", "save_pretrained"},
      {{"config.json", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"},
       "pickles are not read",
       "save_pretrained"},
      {{"consolidated.00.pth", "params.json"}, "consolidated.00.pth", "save_pretrained"},
      {{"model.pt"}, "model.pt, a pickle", "config.json"},
      {{"epoch=3.ckpt"}, "epoch=3.ckpt, a pickle", "save_pretrained"},
      {{"Qwen3-8B-Q4_K_M.gguf", "config.json"}, "llama.cpp", "made from"},
      {{".metadata", "__0_0.distcp", "__1_0.distcp"}, "DCP", "python3 -m ptqwatch.dcp "},
      {{"config.json", "pytorch_model_fsdp_0/", "trainer_state.json", "optimizer.bin"},
       "shards of FSDP",
       "accelerate merge-weights"},
      {{"latest", "global_step10/", "zero_to_fp32.py"}, "DeepSpeed", "zero_to_fp32.py"},
      {{"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"},
       "DeepSpeed",
       "--safe_serialization"},
      {{"latest_checkpointed_iteration.txt", "iter_0000100/"}, "Megatron-LM", "export_ckpt"},
      {{".metadata", "common.pt", "metadata.json", "__0_0.distcp"}, "Megatron-LM", "export_ckpt"},
      {{"mp_rank_00/"}, "Megatron-LM", "export_ckpt"},
      {{"config.json", "model-00001-of-00002.safetensors"},
       "model-00001-of-00002.safetensors",
       "index.json"},
  };
  for (const auto& [names, what, advice] : cases) {
    EXPECT_THAT(TextFor(names), AllOf(HasSubstr(what), HasSubstr(advice))) << names.front();
  }
}

TEST(CheckFormat, SaysNothingOfWhatTrainersWriteBesideTheWeights) {
  EXPECT_EQ(TextFor({"config.json", "optimizer.pt", "scheduler.pt", "rng_state.pth",
                     "rng_state_0.pth", "training_args.bin", "scaler.pt"}),
            "");
  EXPECT_EQ(TextFor({"model.safetensors", "ema.pt"}), "");
  EXPECT_EQ(TextFor({"model-00001-of-00001.safetensors", "model.safetensors.index.json"}), "");
  EXPECT_EQ(TextFor({}), "");
  EXPECT_TRUE(CheckFormat("/nonexistent").ok());
}

TEST(CheckFormat, NamesTheModelOfAnAdapter) {
  const TempDir folder;
  WriteFile(folder.File("adapter_config.json"), R"({"base_model_name_or_path": "Qwen/Qwen3-8B"})");
  EXPECT_THAT(std::string(CheckFormat(folder.path()).message()), HasSubstr("of 'Qwen/Qwen3-8B'"));
}

}  // namespace folder_format_test
}  // namespace ptqwatch::internal
