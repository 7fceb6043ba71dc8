#ifndef PTQWATCH_SNAPSHOT_FINITE_H_
#define PTQWATCH_SNAPSHOT_FINITE_H_

#include <string>

#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// "'blocks.0.qkv.weight' has 3 non-finite values", of the first tensor that has any; or empty.
std::string NonFiniteTensor(const TensorTable& table);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_FINITE_H_
