#ifndef PTQWATCH_COMMON_WEIGHTS_HASH_H_
#define PTQWATCH_COMMON_WEIGHTS_HASH_H_

#include <cstddef>
#include <span>
#include <string>

namespace torch::nn {
class Module;
}

namespace ptqwatch::examples {

/// SHA-256 in hexadecimal of the bytes of all parameters, then all buffers, in the order of
/// named_parameters() and named_buffers(). Two runs with equal hashes ended with identical weights.
std::string WeightsSha256(const torch::nn::Module& module);

/// SHA-256 in hexadecimal of the concatenated arrays.
std::string Sha256(std::span<const std::span<const std::byte>> arrays);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_WEIGHTS_HASH_H_
