#include "cuda/kernels/gram_kernels.h"
#include "cuda/kernels/panel_kernels.h"
#include "cuda/kernels/reduce_kernels.h"
#include "cuda/launch.cuh"

namespace ptqwatch::internal {

PTQWATCH_LAUNCH(StageRows);
PTQWATCH_LAUNCH(FlagRows);
PTQWATCH_LAUNCH(SumColumns);
PTQWATCH_LAUNCH(AddColumns);
PTQWATCH_LAUNCH(MendSlices);
PTQWATCH_LAUNCH(AddPanel);
PTQWATCH_LAUNCH(MirrorSum);
PTQWATCH_LAUNCH(Collapse);
PTQWATCH_LAUNCH(FindNonFinite<float>);
PTQWATCH_LAUNCH(FindNonFinite<double>);
PTQWATCH_LAUNCH(SquaredDistance);

}  // namespace ptqwatch::internal
