// The CUDA libraries of a trainer's process, which needs no GPU to load them.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::cuda_libraries_test {
namespace {

using testing::SizeIs;

// The folders from which each library of this process comes, by the part of its name before ".so".
std::map<std::string, std::set<std::string>> MappedLibraries() {
  std::map<std::string, std::set<std::string>> folders;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t begin = line.find('/');
    if (begin == std::string::npos) continue;
    const std::filesystem::path path = line.substr(begin);
    const std::string name = path.filename();
    if (const size_t end = name.find(".so"); end != std::string::npos) {
      folders[name.substr(0, end)].insert(path.parent_path());
    }
  }
  return folders;
}

TEST(CudaLibraries, ComeFromOneFolder) {
  // The linker takes the engine from the archives only if something refers to it.
  EXPECT_FALSE(Monitor::Create(nullptr, {.on_failure = OnFailure::kError}).ok());
  const auto mapped = MappedLibraries();
  for (const std::string name : {"libtorch_cuda", "libcudart", "libcublas", "libcublasLt"}) {
    ASSERT_TRUE(mapped.contains(name)) << name;
  }
  std::set<std::string> folders;
  for (const std::string name :
       {"libcublas", "libcublasLt", "libcusolver", "libcusparse", "libcudart", "libnvJitLink"}) {
    // LibTorch and ptqwatch do not both load each of them.
    if (const auto library = mapped.find(name); library != mapped.end()) {
      folders.insert(library->second.begin(), library->second.end());
    }
  }
  EXPECT_THAT(folders, SizeIs(1)) << testing::PrintToString(folders);
}

}  // namespace
}  // namespace ptqwatch::cuda_libraries_test
