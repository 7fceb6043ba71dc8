#include "checkpoints.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace ptqwatch::examples {
namespace {

constexpr std::string_view kBegin = "step-";
constexpr std::string_view kEnd = ".safetensors";

// 0 if the name is not that of a checkpoint.
int64_t StepOf(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return 0;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(std::min(name.size(), kEnd.size()));
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : 0;
}

}  // namespace

std::string CheckpointPath(const std::string& folder, int64_t step) {
  return folder + "/" + std::string(kBegin) + std::to_string(step) + std::string(kEnd);
}

int64_t NewestCheckpoint(const std::string& folder) {
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    newest = std::max(newest, StepOf(entry.path().filename().string()));
  }
  return newest;
}

}  // namespace ptqwatch::examples
