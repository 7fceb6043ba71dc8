#include "weights_hash.h"

#include <openssl/evp.h>

#include <array>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "torch/nn/module.h"

namespace ptqwatch::examples {

std::string WeightsSha256(const torch::nn::Module& module) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr);
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().cpu().contiguous();
    EVP_DigestUpdate(hash.get(), bytes.const_data_ptr(), bytes.nbytes());
  };
  for (const auto& parameter : module.named_parameters()) add(parameter.value());
  for (const auto& buffer : module.named_buffers()) add(buffer.value());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(hash.get(), digest.data(), &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

}  // namespace ptqwatch::examples
