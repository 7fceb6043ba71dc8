#ifndef PTQWATCH_COMMON_WEIGHTS_HASH_H_
#define PTQWATCH_COMMON_WEIGHTS_HASH_H_

#include <cstddef>
#include <span>
#include <string>

namespace torch::nn {
class Module;
}

namespace ptqwatch::examples {

/// SHA-256, in hexadecimal, over the bytes of all parameters and then all buffers, in the order in
/// which the module names them. Equal hashes mean that two runs ended with the same weights to the
/// bit.
std::string WeightsSha256(const torch::nn::Module& module);

/// The same over arrays of a trainer's own, one after the other.
std::string Sha256(std::span<const std::span<const std::byte>> arrays);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_WEIGHTS_HASH_H_
