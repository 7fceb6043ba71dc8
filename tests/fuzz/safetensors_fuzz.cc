// Whatever a file holds, the reader refuses it with a message or gives tensors that can be read,
// and a header written from what it read says the same.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "checkpoint/safetensors_header.h"
#include "fuzz/fuzz_target.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::fuzz {
namespace {

// A file of its own, without a name on any disk.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    Require(descriptor_ >= 0 && write(descriptor_, data, size) == static_cast<ssize_t>(size),
            "a file in memory can be written");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void ReadEverything(const SafetensorsFile& file, size_t file_size) {
  int64_t total = 0;
  for (const auto& [name, info] : file.tensors()) {
    total += info.bytes;
    Require(info.bytes >= 0 && total <= static_cast<int64_t>(file_size), "tensors fit the file");
    std::string bytes(static_cast<size_t>(info.bytes), '\0');
    Require(file.ReadBytes(name, 0, absl::MakeSpan(bytes)).ok(), "bytes can be read", name);
    const auto floats = file.ReadFloats(name);
    Require(floats.ok() == IsConvertibleToFloat(info.dtype), "real numbers can be read", name);
    Require(!floats.ok() || static_cast<int64_t>(floats->size()) == info.elements(),
            "as many as the shape says", name);
  }
}

void WriteHeaderAgain(const SafetensorsFile& file, int64_t data_bytes) {
  const std::string text =
      internal::FormatSafetensorsHeader({.tensors = file.tensors(), .metadata = file.metadata()});
  Require(text.size() % 8 == 0, "headers are aligned");
  const auto again = internal::ParseSafetensorsHeader(text, data_bytes);
  Require(again.ok(), "a header written is read", std::string(again.status().message()));
  Require(again->tensors == file.tensors() && again->metadata == file.metadata(),
          "a header written says the same");
}

std::string WithHeader(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(37 * i);
  return bytes;
}

}  // namespace

std::vector<std::string> Seeds() {
  return {
      WithHeader("{}", 0),
      WithHeader(R"({"__metadata__":{"format":"pt","\u00e9":"x"}}    )", 0),
      WithHeader(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
      WithHeader(R"({"__metadata__":{"k":"v"},)"
                 R"("a.b.c":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
                 R"("a.b.d":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                 R"("z":{"dtype":"F4","shape":[4,0],"data_offsets":[12,12]},)"
                 R"("y":{"dtype":"F16","shape":[1,1,1],"data_offsets":[12,14]}})",
                 14),
  };
}

}  // namespace ptqwatch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ptqwatch;  // NOLINT
  const fuzz::MemoryFile memory(data, size);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(memory.path());
  if (!file.ok()) {
    fuzz::Require(file.status().code() == absl::StatusCode::kDataLoss, "damage is DataLoss",
                  std::string(file.status().message()));
    fuzz::Require(internal::IsUtf8(std::string(file.status().message())), "messages are UTF-8");
    return 0;
  }
  fuzz::ReadEverything(*file, size);
  uint64_t header = 0;
  std::memcpy(&header, data, sizeof(header));
  fuzz::WriteHeaderAgain(*file, static_cast<int64_t>(size - 8 - header));
  return 0;
}
