#include "shapes_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptqwatch/offline/safetensors.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace shapes_file_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ShapesFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<TensorShape>> Read(const std::string& text) {
    const std::string path = directory_.File("shapes.json");
    testing::WriteFile(path, text);
    return ReadShapes(path);
  }
  std::string Refusal(const std::string& text) {
    return std::string(Read(text).status().message());
  }

  testing::TempDir directory_;
};

TEST_F(ShapesFileTest, ReadsNamesWithShapes) {
  const auto shapes = Read(R"( {"a.weight": [8, 4], "b": []} )");
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  ASSERT_EQ(shapes->size(), 2u);
  EXPECT_EQ((*shapes)[0].name, "a.weight");
  EXPECT_THAT((*shapes)[0].shape, ElementsAre(8, 4));
  EXPECT_EQ((*shapes)[0].element_bytes, 4);
  EXPECT_TRUE((*shapes)[1].shape.empty());
}

TEST_F(ShapesFileTest, ReadsAHeaderOfSafetensors) {
  const auto shapes = Read(R"({"__metadata__": {"format": "pt"},
      "w": {"dtype": "BF16", "shape": [3, 2], "data_offsets": [0, 12]}})");
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  ASSERT_EQ(shapes->size(), 1u);
  EXPECT_THAT((*shapes)[0].shape, ElementsAre(3, 2));
  EXPECT_EQ((*shapes)[0].element_bytes, 2);
}

TEST_F(ShapesFileTest, ReadsASafetensorsFile) {
  const std::string path = directory_.File("model.safetensors");
  const TensorSource tensor =
      MakeTensorSource("w", TensorDtype::kF32, {2, 3}, std::string(24, '\0'));
  ASSERT_TRUE(WriteSafetensors(path, {tensor}).ok());
  const auto shapes = ReadShapes(path);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  ASSERT_EQ(shapes->size(), 1u);
  EXPECT_EQ((*shapes)[0].name, "w");
  EXPECT_THAT((*shapes)[0].shape, ElementsAre(2, 3));
  EXPECT_EQ((*shapes)[0].element_bytes, 4);
}

TEST_F(ShapesFileTest, NamesFileAndTensorOfAMistake) {
  EXPECT_THAT(Refusal("{\"w\": [8, -4]}"), AllOf(HasSubstr("shapes.json"), HasSubstr("'w'")));
  EXPECT_THAT(Refusal("{\"w\": [8, 1.5]}"), HasSubstr("1.5"));
  EXPECT_THAT(Refusal("{\"w\": 8}"), HasSubstr("no shape"));
  EXPECT_THAT(Refusal("{\"w\": {\"dtype\": \"F32\"}}"), HasSubstr("no shape"));
  EXPECT_THAT(Refusal("{\"w\": [8,"), HasSubstr("no JSON object"));
  EXPECT_THAT(Refusal("[1, 2]"), HasSubstr("shapes.json"));
  EXPECT_THAT(std::string(ReadShapes("/nonexistent").status().message()),
              HasSubstr("/nonexistent"));
}

}  // namespace shapes_file_test
}  // namespace ptqwatch::internal
