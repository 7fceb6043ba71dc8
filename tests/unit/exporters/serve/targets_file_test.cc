#include "serve/targets_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/host_name.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/run_server.h"
#include "support/temp_dir.h"

namespace ptqwatch::testing {
namespace targets_file_test {

using internal::TargetsFile;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(TargetsFile, NamesTheServerWhileItExists) {
  const TempDir folder;
  const std::string path = folder.File("targets.json");
  const mode_t before = umask(077);
  auto file = TargetsFile::Write(path, "127.0.0.1:9464", false);
  umask(before);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(json::parse(ContentOf(path)), json::parse(R"([{"targets": ["127.0.0.1:9464"]}])"));
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);  // Prometheus is another user
  file->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TargetsFile, SaysHowToReachAServerWithTls) {
  const TempDir folder;
  const auto file = TargetsFile::Write(folder.File("t"), "[::1]:1", true);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(json::parse(ContentOf(folder.File("t"))),
            json::parse(R"([{"targets": ["[::1]:1"], "labels": {"__scheme__": "https"}}])"));
}

TEST(TargetsFile, NamesTheMachineInPlaceOfAWildcard) {
  const TempDir folder;
  for (const char* address : {"0.0.0.0:7", "[::]:7"}) {
    const auto file = TargetsFile::Write(folder.File("t"), address, false);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(json::parse(ContentOf(folder.File("t")))[0]["targets"][0],
              internal::HostName() + ":7");
  }
}

TEST(TargetsFile, LeavesTheFileOfAnotherServer) {
  const TempDir folder;
  auto first = TargetsFile::Write(folder.File("t"), "127.0.0.1:1", false);
  const auto second = TargetsFile::Write(folder.File("t"), "127.0.0.1:2", false);
  ASSERT_TRUE(first.ok() && second.ok());
  first->reset();
  EXPECT_THAT(ContentOf(folder.File("t")), HasSubstr("127.0.0.1:2"));
}

TEST(TargetsFile, IsNamedIfItCannotBeWritten) {
  const auto file = TargetsFile::Write("/nowhere/t", "127.0.0.1:1", false);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr("ServeOptions.targets_file = '/nowhere/t'"));
}

TEST(TargetsFile, HasThePortThatARunServerHasTaken) {
  const TempDir folder;
  const std::string path = folder.File("targets.json");
  auto server = RunServer::Create({folder.File("run")},
                                  {.http = "127.0.0.1:0", .grpc = "", .targets_file = path});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(json::parse(ContentOf(path))[0]["targets"][0], (*server)->http_address());
  (*server)->Stop();
  EXPECT_FALSE(std::filesystem::exists(path));

  const absl::Status refused =
      RunServer::Create({folder.File("run")},
                        {.http = "", .grpc = "127.0.0.1:0", .targets_file = path})
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("ServeOptions.targets_file"), HasSubstr(path)));
}

}  // namespace targets_file_test
}  // namespace ptqwatch::testing
