#include "golden/golden_file.h"

#include "absl/strings/numbers.h"
#include "base/strings.h"

namespace ptqwatch::testing {
namespace {

using internal::StrCat;

absl::Status Damaged(const std::string& what) { return absl::DataLossError(what); }

}  // namespace

absl::StatusOr<GoldenFile> GoldenFile::Read(const std::string& path) {
  absl::StatusOr<ptqwatch::SafetensorsFile> file = ptqwatch::SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  return GoldenFile(*std::move(file));
}

absl::StatusOr<std::vector<int64_t>> GoldenFile::Shape(std::string_view tensor) const {
  const TensorInfo* info = file_.Find(tensor);
  if (info == nullptr) return absl::NotFoundError(StrCat("no tensor '", tensor, "'"));
  return info->shape;
}

template <typename T>
absl::StatusOr<std::vector<T>> GoldenFile::Values(std::string_view tensor, TensorDtype dtype,
                                                  const std::vector<int64_t>& shape) const {
  const TensorInfo* info = file_.Find(tensor);
  if (info == nullptr) return absl::NotFoundError(StrCat("no tensor '", tensor, "'"));
  if (info->dtype != dtype || info->shape != shape) {
    TensorInfo wanted;
    wanted.dtype = dtype;
    wanted.shape = shape;
    return Damaged(
        StrCat("tensor '", tensor, "' is ", info->Describe(), ", expected ", wanted.Describe()));
  }
  std::vector<T> values(static_cast<size_t>(info->elements()));
  absl::Status read = file_.ReadBytes(
      tensor, 0, absl::MakeSpan(reinterpret_cast<char*>(values.data()), values.size() * sizeof(T)));
  if (!read.ok()) return read;
  return values;
}

absl::StatusOr<std::vector<float>> GoldenFile::Floats(std::string_view tensor,
                                                      const std::vector<int64_t>& shape) const {
  return Values<float>(tensor, TensorDtype::kF32, shape);
}
absl::StatusOr<std::vector<double>> GoldenFile::Doubles(std::string_view tensor,
                                                        const std::vector<int64_t>& shape) const {
  return Values<double>(tensor, TensorDtype::kF64, shape);
}
absl::StatusOr<std::vector<uint8_t>> GoldenFile::Uint8s(std::string_view tensor,
                                                        const std::vector<int64_t>& shape) const {
  return Values<uint8_t>(tensor, TensorDtype::kU8, shape);
}
absl::StatusOr<std::vector<int8_t>> GoldenFile::Int8s(std::string_view tensor,
                                                      const std::vector<int64_t>& shape) const {
  return Values<int8_t>(tensor, TensorDtype::kI8, shape);
}
absl::StatusOr<std::vector<int32_t>> GoldenFile::Int32s(std::string_view tensor,
                                                        const std::vector<int64_t>& shape) const {
  return Values<int32_t>(tensor, TensorDtype::kI32, shape);
}
absl::StatusOr<std::vector<int64_t>> GoldenFile::Int64s(std::string_view tensor,
                                                        const std::vector<int64_t>& shape) const {
  return Values<int64_t>(tensor, TensorDtype::kI64, shape);
}

absl::StatusOr<std::string> GoldenFile::Text(std::string_view key) const {
  const auto found = file_.metadata().find(key);
  if (found == file_.metadata().end()) {
    return absl::NotFoundError(StrCat("no metadata '", key, "'"));
  }
  return found->second;
}

absl::StatusOr<double> GoldenFile::Number(std::string_view key) const {
  absl::StatusOr<std::string> text = Text(key);
  if (!text.ok()) return text.status();
  double value = 0;
  if (!absl::SimpleAtod(*text, &value)) {
    return Damaged(StrCat("metadata '", key, "' is '", *text, "', not a number"));
  }
  return value;
}

absl::StatusOr<int> GoldenFile::Integer(std::string_view key) const {
  absl::StatusOr<std::string> text = Text(key);
  if (!text.ok()) return text.status();
  int value = 0;
  if (!absl::SimpleAtoi(*text, &value)) {
    return Damaged(StrCat("metadata '", key, "' is '", *text, "', not an integer"));
  }
  return value;
}

absl::StatusOr<bool> GoldenFile::Flag(std::string_view key) const {
  absl::StatusOr<std::string> text = Text(key);
  if (!text.ok()) return text.status();
  if (*text == "true" || *text == "True") return true;
  if (*text == "false" || *text == "False") return false;
  return Damaged(StrCat("metadata '", key, "' is '", *text, "', neither true nor false"));
}

}  // namespace ptqwatch::testing
