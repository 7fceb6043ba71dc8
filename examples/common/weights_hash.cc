#include "weights_hash.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "torch/nn/module.h"

namespace ptqwatch::examples {

namespace {

// FIPS 180-4. With OpenSSL's, a trainer would load a library that LibTorch does without.
class Sha256State {
 public:
  Sha256State() {
    size_t count = 0;
    for (uint32_t n = 2; count < round_.size(); ++n) {
      bool prime = true;
      for (uint32_t d = 2; d * d <= n; ++d) prime &= n % d != 0;
      if (!prime) continue;
      if (count < hash_.size()) hash_[count] = Fraction(std::sqrt(static_cast<long double>(n)));
      round_[count++] = Fraction(std::cbrt(static_cast<long double>(n)));
    }
  }

  void Add(std::byte value) {
    block_[size_++ % block_.size()] = std::to_integer<uint32_t>(value);
    if (size_ % block_.size() == 0) Compress();
  }
  std::string Finish() {
    const uint64_t bits = 8 * size_;
    Add(std::byte{0x80});
    while (size_ % block_.size() != block_.size() - sizeof(bits)) Add(std::byte{0});
    for (int shift = 56; shift >= 0; shift -= 8) Add(static_cast<std::byte>(bits >> shift));
    std::string hex;
    for (const uint32_t word : hash_) hex += absl::StrFormat("%08x", word);
    return hex;
  }

 private:
  static uint32_t Fraction(long double value) {
    return static_cast<uint32_t>((value - std::floor(value)) * 4294967296.0L);
  }

  void Compress() {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 16; ++i) {
      const uint32_t* const bytes = &block_[4 * i];
      w[i] = bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    }
    for (size_t i = 16; i < w.size(); ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = hash_;
    for (size_t i = 0; i < w.size(); ++i) {
      const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                             ((e & f) ^ (~e & g)) + round_[i] + w[i];
      const uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = std::exchange(g, std::exchange(f, std::exchange(e, d + first)));
      d = std::exchange(c, std::exchange(b, std::exchange(a, first + second)));
    }
    const std::array<uint32_t, 8> change = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < hash_.size(); ++i) hash_[i] += change[i];
  }

  std::array<uint32_t, 8> hash_{};
  std::array<uint32_t, 64> round_{};
  std::array<uint32_t, 64> block_{};  // a byte each
  uint64_t size_ = 0;
};

}  // namespace

std::string Sha256(std::span<const std::span<const std::byte>> arrays) {
  Sha256State state;
  for (const std::span<const std::byte> array : arrays) {
    for (const std::byte value : array) state.Add(value);
  }
  return state.Finish();
}

std::string WeightsSha256(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors;
  std::vector<std::span<const std::byte>> arrays;
  const auto add = [&](const at::Tensor& tensor) {
    tensors.push_back(tensor.detach().cpu().contiguous());
    arrays.emplace_back(static_cast<const std::byte*>(tensors.back().const_data_ptr()),
                        tensors.back().nbytes());
  };
  for (const auto& parameter : module.named_parameters()) add(parameter.value());
  for (const auto& buffer : module.named_buffers()) add(buffer.value());
  return Sha256(arrays);
}

}  // namespace ptqwatch::examples
