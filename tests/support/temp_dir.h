#ifndef PTQWATCH_TESTS_SUPPORT_TEMP_DIR_H_
#define PTQWATCH_TESTS_SUPPORT_TEMP_DIR_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace ptqwatch::testing {

/// A new directory. The destructor removes it.
class TempDir {
 public:
  TempDir() {
    std::string name = ::testing::TempDir() + "/ptqwatch_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot create " << name;
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_TEMP_DIR_H_
