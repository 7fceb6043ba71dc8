#ifndef PTQWATCH_MODELS_CONFIG_READER_H_
#define PTQWATCH_MODELS_CONFIG_READER_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ptqwatch::internal {

inline constexpr int64_t kMaxConfigSize = std::numeric_limits<int32_t>::max();

/// An object of a config file. A key with the value null counts as absent, except for IsNull. Every
/// error is InvalidArgument and names file, key and value. Refers to `object` and `path`, which
/// must outlive it.
class ConfigReader {
 public:
  /// `prefix` comes before keys in messages, "rope_parameters.".
  ConfigReader(const nlohmann::json& object, std::string_view path, std::string prefix = {})
      : object_(&object), path_(path), prefix_(std::move(prefix)) {}

  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  /// Whether the key is there with the value null.
  bool IsNull(std::string_view key) const;
  /// Whether the key is absent, null or false.
  bool IsOff(std::string_view key) const;

  /// An integer from `min` to `max`; `fallback` if absent. Without a fallback the key is needed.
  absl::StatusOr<int64_t> Size(std::string_view key, std::optional<int64_t> fallback = std::nullopt,
                               int64_t min = 1, int64_t max = kMaxConfigSize) const;
  /// A finite number above 0.
  absl::StatusOr<double> Positive(std::string_view key,
                                  std::optional<double> fallback = std::nullopt) const;
  absl::StatusOr<bool> Flag(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string> Text(std::string_view key,
                                   std::optional<std::string_view> fallback = std::nullopt) const;
  /// An array of strings, of 0 and 1, or of finite numbers above 0; empty if absent.
  absl::StatusOr<std::vector<std::string>> Texts(std::string_view key) const;
  absl::StatusOr<std::vector<bool>> Bits(std::string_view key) const;
  absl::StatusOr<std::vector<double>> Positives(std::string_view key) const;
  /// An array of integers from 0; empty if absent.
  absl::StatusOr<std::vector<int64_t>> Places(std::string_view key) const;
  /// A reader of an object that is not empty; none if it is, or absent.
  absl::StatusOr<std::optional<ConfigReader>> Object(std::string_view key) const;

  /// "'dir/config.json': rope_parameters.factor `what`".
  absl::Status Error(std::string_view key, std::string_view what) const;
  /// "... is `value`; `need`".
  absl::Status WrongValue(std::string_view key, std::string_view need) const;

 private:
  const nlohmann::json* Find(std::string_view key) const;

  const nlohmann::json* object_;
  std::string_view path_;
  std::string prefix_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_CONFIG_READER_H_
