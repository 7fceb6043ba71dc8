#include "trajectory/token_source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr int64_t kMostNumpyHeader = 1 << 16;
// llm.c: 256 int32, of which the first three are magic, version and number of tokens.
constexpr int64_t kLlmcHeader = 1024;
constexpr int32_t kLlmcMagic2 = 20240520;
constexpr int32_t kLlmcMagic4 = 20240801;

absl::Status BadTokens(const std::string& path, std::string_view problem) {
  return absl::InvalidArgumentError(StrCat(Quoted(path), " ", problem));
}

// A file that is read at any place. Thread-safe.
class DataFile {
 public:
  static absl::StatusOr<std::shared_ptr<const DataFile>> Open(const std::string& path) {
    // Without O_NONBLOCK, opening a FIFO would wait for its writer.
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return absl::ErrnoToStatus(errno, StrCat("cannot open ", Quoted(path)));
    std::shared_ptr<DataFile> file(new DataFile(descriptor, path));
    struct stat info {};
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
      return BadTokens(path, "is not a regular file");
    }
    file->size_ = info.st_size;
    return file;
  }
  ~DataFile() { close(descriptor_); }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  int64_t size() const { return size_; }

  absl::Status Read(int64_t offset, absl::Span<char> out) const {
    while (!out.empty()) {
      const ssize_t got = pread(descriptor_, out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return absl::ErrnoToStatus(errno, StrCat("cannot read ", Quoted(path_)));
      if (got == 0) return absl::DataLossError(StrCat(Quoted(path_), " was cut while it was read"));
      out.remove_prefix(static_cast<size_t>(got));
      offset += got;
    }
    return absl::OkStatus();
  }

 private:
  DataFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  const int descriptor_;
  const std::string path_;
  int64_t size_ = 0;
};

using File = std::shared_ptr<const DataFile>;

std::function<absl::Status(int64_t, absl::Span<char>)> ReaderFrom(File file, int64_t begin) {
  return [file = std::move(file), begin](int64_t offset, absl::Span<char> out) {
    return file->Read(begin + offset, out);
  };
}

absl::StatusOr<TokenSource> OpenRaw(const File& file, const std::string& path, int bytes) {
  int64_t begin = 0;
  if (file->size() >= kLlmcHeader) {
    int32_t header[3];
    char raw[sizeof(header)];
    PTQWATCH_RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(raw)));
    std::memcpy(header, raw, sizeof(header));
    const int stored = header[0] == kLlmcMagic2 ? 2 : header[0] == kLlmcMagic4 ? 4 : 0;
    // Tokens that only look like a header do not give the size of the file, too.
    if (stored > 0 && file->size() == kLlmcHeader + int64_t{header[2]} * stored) {
      bytes = stored;
      begin = kLlmcHeader;
    }
  }
  if ((file->size() - begin) % bytes != 0) {
    return BadTokens(path, StrCat("has ", file->size() - begin,
                                  " bytes, which are no whole number "
                                  "of tokens of ",
                                  bytes, " bytes (--token-bytes)"));
  }
  return TokenSource{.bytes = bytes,
                     .is_signed = false,
                     .count = (file->size() - begin) / bytes,
                     .read = ReaderFrom(file, begin)};
}

// The text after `key` in the header of a NumPy array, without leading spaces.
std::optional<std::string_view> AfterKey(std::string_view header, std::string_view key) {
  const size_t at = header.find(StrCat("'", key, "':"));
  if (at == std::string_view::npos) return std::nullopt;
  header.remove_prefix(at + key.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

// The number of elements of "(100, 33), ..."; nullopt unless there are one or two dimensions.
std::optional<int64_t> ElementsOf(std::string_view shape) {
  const size_t end = shape.find(')');
  if (!shape.starts_with('(') || end == std::string_view::npos) return std::nullopt;
  int64_t elements = 1;
  int dimensions = 0;
  const std::string inside(shape.substr(1, end - 1));
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(inside, ',', absl::SkipWhitespace()))) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) return std::nullopt;
    if (__builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
    ++dimensions;
  }
  return dimensions == 1 || dimensions == 2 ? std::optional(elements) : std::nullopt;
}

// numpy.lib.format: magic, two bytes of version, the header's length in two bytes (version 1) or
// four, the header, the elements.
absl::StatusOr<TokenSource> OpenNumpy(const File& file, const std::string& path) {
  constexpr int64_t kBeforeLength = 8;
  unsigned char start[12] = {};
  const int64_t read = std::min<int64_t>(file->size(), sizeof(start));
  PTQWATCH_RETURN_IF_ERROR(
      file->Read(0, {reinterpret_cast<char*>(start), static_cast<size_t>(read)}));
  const bool wide = start[6] >= 2;
  const int64_t begin = kBeforeLength + (wide ? 4 : 2);
  int64_t length = start[8] + 256 * start[9];
  if (wide) length += (int64_t{start[10]} << 16) + (int64_t{start[11]} << 24);
  if (length > kMostNumpyHeader || begin + length > file->size()) {
    return BadTokens(path, "is a damaged NumPy file");
  }
  std::string header(static_cast<size_t>(length), '\0');
  PTQWATCH_RETURN_IF_ERROR(file->Read(begin, absl::MakeSpan(header)));
  const auto descr = AfterKey(header, "descr");
  const auto order = AfterKey(header, "fortran_order");
  const auto shape = AfterKey(header, "shape");
  if (!descr || !order || !shape) return BadTokens(path, "is a damaged NumPy file");
  const std::string_view dtype = descr->substr(0, descr->find_first_of(",}"));
  TokenSource source{.read = ReaderFrom(file, begin + length)};
  for (const int bytes : {1, 2, 4, 8}) {
    for (const char kind : {'i', 'u'}) {
      if (dtype != StrCat(bytes == 1 ? "'|" : "'<", std::string(1, kind), bytes, "'")) continue;
      source.bytes = bytes;
      source.is_signed = kind == 'i';
    }
  }
  if (source.bytes == 0) {
    return BadTokens(
        path, StrCat("is an array of dtype ", dtype, ", not of integers in little-endian order"));
  }
  const std::optional<int64_t> elements = ElementsOf(*shape);
  if (!elements) {
    return BadTokens(path, StrCat("is an array of shape ", shape->substr(0, shape->find(')') + 1),
                                  ", not of one or two dimensions"));
  }
  if (!order->starts_with("False")) return BadTokens(path, "is an array in Fortran order");
  if (*elements > (file->size() - begin - length) / source.bytes) {
    return absl::DataLossError(StrCat(Quoted(path), " is shorter than its header says"));
  }
  source.count = *elements;
  return source;
}

// Bytes and sign of a dtype; 0 bytes unless it is one of integers.
std::pair<int, bool> IntegerType(TensorDtype dtype) {
  switch (dtype) {
    case TensorDtype::kU8:
      return {1, false};
    case TensorDtype::kI8:
      return {1, true};
    case TensorDtype::kU16:
      return {2, false};
    case TensorDtype::kI16:
      return {2, true};
    case TensorDtype::kU32:
      return {4, false};
    case TensorDtype::kI32:
      return {4, true};
    case TensorDtype::kU64:
      return {8, false};
    case TensorDtype::kI64:
      return {8, true};
    default:
      return {0, false};
  }
}

absl::StatusOr<TokenSource> OpenTensor(const std::string& path) {
  PTQWATCH_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
  const auto file = std::make_shared<const SafetensorsFile>(std::move(opened));
  std::vector<std::string> names;
  TokenSource source;
  for (const auto& [name, info] : file->tensors()) {
    const auto [bytes, is_signed] = IntegerType(info.dtype);
    if (bytes == 0) continue;
    names.push_back(name);
    source = {.bytes = bytes,
              .is_signed = is_signed,
              .count = info.elements(),
              .read = [file, tensor = name](int64_t offset, absl::Span<char> out) {
                return file->ReadBytes(tensor, offset, out);
              }};
  }
  if (names.size() == 1) return source;
  return BadTokens(path, names.empty() ? "has no tensor of integers"
                                       : StrCat("has several tensors of integers: ", names[0], ", ",
                                                names[1], names.size() > 2 ? ", ..." : ""));
}

}  // namespace

absl::StatusOr<TokenSource> OpenTokenSource(const std::string& path, int raw_bytes) {
  if (path.ends_with(".safetensors")) return OpenTensor(path);
  PTQWATCH_ASSIGN_OR_RETURN(const File file, DataFile::Open(path));
  char magic[kNumpyMagic.size()];
  if (file->size() >= static_cast<int64_t>(sizeof(magic))) {
    PTQWATCH_RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(magic)));
    if (std::string_view(magic, sizeof(magic)) == kNumpyMagic) return OpenNumpy(file, path);
  }
  if (path.ends_with(".npy")) return BadTokens(path, "is not a NumPy file");
  return OpenRaw(file, path, raw_bytes);
}

}  // namespace ptqwatch::internal
