#ifndef PTQWATCH_TESTS_UNIT_CHECKPOINT_RAW_SAFETENSORS_H_
#define PTQWATCH_TESTS_UNIT_CHECKPOINT_RAW_SAFETENSORS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ptqwatch::testing {

/// A file with that header and data, whether they make sense or not.
inline std::string WithHeader(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_CHECKPOINT_RAW_SAFETENSORS_H_
