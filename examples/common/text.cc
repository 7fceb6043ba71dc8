#include "text.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/status/status.h"

namespace ptqwatch::examples {
namespace {

// -l makes the text independent of the terminal's width.
constexpr char kBibleCommand[] = "bible -l79 'Gen1:1-Rev22:21' 2>/dev/null";

bool ReadAll(std::FILE* file, std::string* bytes) {
  std::array<char, 1 << 16> buffer;
  size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), file)) > 0) {
    bytes->append(buffer.data(), count);
  }
  return std::ferror(file) == 0;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::string bytes;
  const bool read = file != nullptr && ReadAll(file, &bytes);
  const int error = errno;
  if (file != nullptr) std::fclose(file);
  if (!read) return absl::NotFoundError("--text " + path + ": " + std::strerror(error));
  if (bytes.empty()) return absl::InvalidArgumentError("--text " + path + ": is empty");
  return bytes;
}

absl::StatusOr<std::string> ReadBible() {
  std::string bytes;
  std::FILE* pipe = popen(kBibleCommand, "r");
  const bool read = pipe != nullptr && ReadAll(pipe, &bytes);
  const int exit_status = pipe != nullptr ? pclose(pipe) : -1;
  if (!read || exit_status != 0 || bytes.empty()) {
    return absl::NotFoundError(
        "--text: the program `bible` does not run; install the Debian package bible-kjv, or name a "
        "file");
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path) {
  return path.empty() ? ReadBible() : ReadFile(path);
}

absl::StatusOr<Text> LoadText(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadText(path);
  if (!bytes.ok()) return bytes.status();

  std::array<bool, 256> seen{};
  for (const char c : *bytes) seen[static_cast<uint8_t>(c)] = true;
  std::array<uint8_t, 256> number{};
  Text text;
  for (size_t byte = 0; byte < seen.size(); ++byte) {
    if (seen[byte]) number[byte] = static_cast<uint8_t>(text.vocabulary++);
  }
  const size_t split = bytes->size() / 10 * 9;
  std::vector<uint8_t> numbers;
  numbers.reserve(bytes->size());
  for (const char c : *bytes) numbers.push_back(number[static_cast<uint8_t>(c)]);
  text.training.assign(numbers.begin(), numbers.begin() + static_cast<int64_t>(split));
  text.validation.assign(numbers.begin() + static_cast<int64_t>(split), numbers.end());
  return text;
}

}  // namespace ptqwatch::examples
