#include "curvature/symmetric_operator.h"

namespace ptqwatch::internal {

absl::Status ZeroOperatorError() {
  return absl::FailedPreconditionError(
      "every product with the Hessian is zero: the loss does not depend on the parameters in "
      "scope, or is linear in them");
}

}  // namespace ptqwatch::internal
