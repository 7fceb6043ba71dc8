#include "cuda/kernels/cholesky_kernel.h"
#include "cuda/kernels/factor_kernels.h"
#include "cuda/kernels/gptq_kernels.h"
#include "cuda/launch.cuh"

namespace ptqwatch::internal {

PTQWATCH_LAUNCH(DescribeInputs);
PTQWATCH_LAUNCH(RankColumns);
PTQWATCH_LAUNCH(FindDuplicates);
PTQWATCH_LAUNCH(BuildDamped);
PTQWATCH_LAUNCH(FactorBlock);
PTQWATCH_LAUNCH(PackFeedback);
PTQWATCH_LAUNCH(PackWeight);
PTQWATCH_LAUNCH(QuantizeBlock);
PTQWATCH_LAUNCH(UnpackCodes);

}  // namespace ptqwatch::internal
