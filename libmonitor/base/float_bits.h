#ifndef PTQWATCH_BASE_FLOAT_BITS_H_
#define PTQWATCH_BASE_FLOAT_BITS_H_

#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace ptqwatch::internal {

PTQWATCH_HOST_DEVICE inline uint32_t FloatBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
PTQWATCH_HOST_DEVICE inline float FloatFromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

PTQWATCH_HOST_DEVICE inline bool IsFiniteBits(float value) {
  return (FloatBits(value) & 0x7f800000u) != 0x7f800000u;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_FLOAT_BITS_H_
