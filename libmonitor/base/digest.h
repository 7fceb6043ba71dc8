#ifndef PTQWATCH_BASE_DIGEST_H_
#define PTQWATCH_BASE_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// Computes XXH3-128 of a sequence of values. Not cryptographic; the same on every machine.
class PTQWATCH_EXPORT Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void AddBytes(const void* data, size_t size);
  /// Includes the length, so that "ab", "c" differs from "a", "bc".
  void Add(std::string_view text);
  void Add(int64_t value);

  /// 32 hexadecimal digits, most significant first.
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_DIGEST_H_
