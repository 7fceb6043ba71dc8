#include "base/digest.h"

#include <array>

#include "base/strings.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace ptqwatch::internal {

struct Digest::State {
  XXH3_state_t hash;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
Digest::~Digest() = default;

void Digest::AddBytes(const void* data, size_t size) {
  if (size > 0) XXH3_128bits_update(&state_->hash, data, size);
}

void Digest::Add(std::string_view text) {
  AddBytes(text.data(), text.size());
  AddBytes("", 1);
}

void Digest::Add(int64_t value) {
  std::array<unsigned char, 8> bytes{};  // little-endian on every machine
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(value) >> (8 * i));
  }
  AddBytes(bytes.data(), bytes.size());
}

std::string Digest::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  return StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace ptqwatch::internal
