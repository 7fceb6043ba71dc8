#include "models/checkpoint_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ptqwatch/offline/safetensors.h"
#include "support/temp_dir.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace checkpoint_files_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

class CheckpointFilesTest : public ::testing::Test {
 protected:
  CheckpointFilesTest() { WriteFile(File("config.json"), testing::TinyConfig("llama")); }

  std::string File(const std::string& name) const { return folder_.File(name); }
  // Writes a file with these tensors of one element.
  void WriteTensors(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<TensorSource> sources;
    for (const std::string& tensor : tensors) {
      sources.push_back(MakeTensorSource(tensor, TensorDtype::kF32, {1}, std::string(4, '\0')));
    }
    ASSERT_TRUE(WriteSafetensors(File(name), sources).ok());
  }
  void WriteIndex(const std::string& weight_map) {
    WriteFile(File("model.safetensors.index.json"),
              "{\"metadata\": {\"total_size\": 12}, \"weight_map\": " + weight_map + "}");
  }
  // Two shards, with `a` and `c` in the first.
  void WriteShards() {
    WriteTensors("one.safetensors", {"a", "c"});
    WriteTensors("two.safetensors", {"b"});
    WriteIndex(R"({"b": "two.safetensors", "a": "one.safetensors", "c": "one.safetensors"})");
  }
  std::string Refusal(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = CheckpointFiles::Open(folder_.path()).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.path()));
    return std::string(status.message());
  }

  TempDir folder_;
};

TEST_F(CheckpointFilesTest, OpensOneFile) {
  WriteTensors("model.safetensors", {"b", "a"});
  const absl::StatusOr<CheckpointFiles> files = CheckpointFiles::Open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->config().model_type, "llama");
  EXPECT_THAT(files->Names(), ElementsAre("a", "b"));
  EXPECT_EQ(files->Find("a").file->path(), File("model.safetensors"));
  EXPECT_EQ(files->Find("z").file, nullptr);
}

TEST_F(CheckpointFilesTest, OpensShards) {
  WriteShards();
  const absl::StatusOr<CheckpointFiles> files = CheckpointFiles::Open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->Names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(files->Find("b").file->path(), File("two.safetensors"));
  EXPECT_EQ(files->Find("c").file->path(), File("one.safetensors"));
}

TEST_F(CheckpointFilesTest, FollowsTheLinksOfAHubCache) {
  WriteTensors("blob", {"a"});
  std::filesystem::create_symlink("blob", File("model.safetensors"));
  std::filesystem::rename(File("config.json"), File("blob2"));
  std::filesystem::create_symlink("blob2", File("config.json"));
  EXPECT_TRUE(CheckpointFiles::Open(folder_.path()).ok());
}

TEST_F(CheckpointFilesTest, NamesWhatIsMissing) {
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("model.safetensors.index.json"));
  std::filesystem::remove(File("config.json"));
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("config.json"));
}

TEST_F(CheckpointFilesTest, PicklesAreNotReadAndTheirConversionIsNamed) {
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    WriteFile(File(pickle), "x");
    EXPECT_THAT(Refusal(), AllOf(HasSubstr(pickle), HasSubstr("save_pretrained")));
    std::filesystem::remove(File(pickle));
  }
}

TEST_F(CheckpointFilesTest, FollowsAliases) {
  const auto source = [](const char* name) {
    return MakeTensorSource(name, TensorDtype::kF32, {1}, std::string(4, '\0'));
  };
  ASSERT_TRUE(WriteSafetensors(
                  File("model.safetensors"), {source("lm_head.weight"), source("a")},
                  {{"format", "pt"}, {"model.embed_tokens.weight", "lm_head.weight"}, {"b", "a"}})
                  .ok());
  absl::StatusOr<CheckpointFiles> files = CheckpointFiles::Open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->Names(), ElementsAre("a", "b", "lm_head.weight", "model.embed_tokens.weight"));
  EXPECT_EQ(files->Find("b").name, "a");
  EXPECT_EQ(files->Find("model.embed_tokens.weight").name, "lm_head.weight");
  WriteFile(File("config.json"), testing::TinyConfig("llama", ", \"tie_word_embeddings\": true"));
  files = CheckpointFiles::Open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->Names(), ElementsAre("a", "b", "model.embed_tokens.weight"));
}

TEST_F(CheckpointFilesTest, ATiedHeadAloneIsTheEmbedding) {
  WriteFile(File("config.json"), testing::TinyConfig("llama", ", \"tie_word_embeddings\": true"));
  WriteTensors("model.safetensors", {"module.lm_head.weight", "module.model.norm.weight"});
  absl::StatusOr<CheckpointFiles> files = CheckpointFiles::Open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->Names(), ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
}

TEST_F(CheckpointFilesTest, SeesThroughWrappers) {
  const std::vector<std::vector<std::string>> stored = {
      {"model.embed_tokens.weight", "model.layers.0.x.weight", "lm_head.weight"},
      {"_orig_mod.model.embed_tokens.weight", "_orig_mod.model.layers.0.x.weight",
       "_orig_mod.lm_head.weight"},
      {"model.embed_tokens.weight", "model.layers.0._orig_mod.x.weight", "lm_head.weight"},
      {"module._orig_mod.model.embed_tokens.weight",
       "module._orig_mod.model.layers.0._checkpoint_wrapped_module.x.weight",
       "module._orig_mod.lm_head.weight"},
      {"_fsdp_wrapped_module.model.embed_tokens.weight",
       "_fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module.x.weight",
       "_fsdp_wrapped_module.lm_head.weight"},
      {"model.model.embed_tokens.weight", "model.model.layers.0.x.weight", "model.lm_head.weight"},
      {"embed_tokens.weight", "layers.0.x.weight", "lm_head.weight"},
      {"module.embed_tokens.weight", "module.layers.0.x.weight", "module.lm_head.weight"},
  };
  for (const std::vector<std::string>& names : stored) {
    WriteTensors("model.safetensors", names);
    const absl::StatusOr<CheckpointFiles> files = CheckpointFiles::Open(folder_.path());
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_THAT(files->Names(), ElementsAre("lm_head.weight", "model.embed_tokens.weight",
                                            "model.layers.0.x.weight"))
        << names.front();
    EXPECT_EQ(files->Find("model.embed_tokens.weight").name, names.front());
  }
}

TEST_F(CheckpointFilesTest, DoesNotChooseBetweenModels) {
  WriteTensors("model.safetensors",
               {"student.model.embed_tokens.weight", "teacher.model.embed_tokens.weight"});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("several models"), HasSubstr("'student.', 'teacher.'")));
  WriteTensors("model.safetensors",
               {"model.embed_tokens.weight", "model._orig_mod.embed_tokens.weight"});
  EXPECT_THAT(Refusal(), HasSubstr("are both 'model.embed_tokens.weight'"));
  WriteTensors("model.safetensors", {"model.embed_tokens.weight", "ema.model.embed_tokens.weight"});
  const absl::StatusOr<CheckpointFiles> files = CheckpointFiles::Open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->Names(),
              ElementsAre("ema.model.embed_tokens.weight", "model.embed_tokens.weight"));
}

TEST_F(CheckpointFilesTest, ADamagedConfigIsNamed) {
  WriteTensors("model.safetensors", {"a"});
  WriteFile(File("config.json"), testing::TinyConfig("llama", ", \"rms_norm_eps\": -1"));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("config.json"), HasSubstr("rms_norm_eps")));
  std::filesystem::remove(File("config.json"));
  std::filesystem::create_directory(File("config.json"));
  EXPECT_THAT(Refusal(absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("config.json"), HasSubstr("Is a directory")));
}

TEST_F(CheckpointFilesTest, AShardThatIsMissingIsNamedWithATensor) {
  WriteShards();
  std::filesystem::remove(File("two.safetensors"));
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound),
              AllOf(HasSubstr("two.safetensors"), HasSubstr("'b'"), HasSubstr("index.json")));
}

TEST_F(CheckpointFilesTest, ATruncatedShardIsNamed) {
  WriteShards();
  std::filesystem::resize_file(File("two.safetensors"),
                               std::filesystem::file_size(File("two.safetensors")) - 1);
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("two.safetensors"));
}

TEST_F(CheckpointFilesTest, IndexAndShardsMustAgree) {
  WriteShards();
  WriteTensors("one.safetensors", {"a"});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("one.safetensors"), HasSubstr("no tensor 'c'")));
  WriteTensors("one.safetensors", {"a", "c", "d"});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("one.safetensors"), HasSubstr("has tensor 'd'"),
                               HasSubstr("does not list it")));
  WriteTensors("one.safetensors", {"a", "b", "c"});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("one.safetensors"), HasSubstr("has tensor 'b'"),
                               HasSubstr("two.safetensors")));
}

TEST_F(CheckpointFilesTest, ADamagedIndexIsNamed) {
  for (const char* text :
       {"", "[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {}}",
        "{\"weight_map\": {\"a\": 3}}", "{\"weight_map\": {\"a\": \"\"}}",
        "{\"weight_map\": {\"a\": \"../x\"}}", "{\"weight_map\": {\"a\": \"/etc/passwd\"}}"}) {
    WriteFile(File("model.safetensors.index.json"), text);
    EXPECT_THAT(Refusal(), HasSubstr("index.json")) << text;
  }
}

}  // namespace checkpoint_files_test
}  // namespace ptqwatch::internal
