#include "weights_hash.h"

#include <openssl/evp.h>

#include <array>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "torch/nn/module.h"

namespace ptqwatch::examples {

std::string Sha256(std::span<const std::span<const std::byte>> arrays) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr);
  for (const std::span<const std::byte> array : arrays) {
    EVP_DigestUpdate(hash.get(), array.data(), array.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(hash.get(), digest.data(), &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
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
