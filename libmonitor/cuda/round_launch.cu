#include "cuda/kernels/awq_kernels.h"
#include "cuda/kernels/clip_kernels.h"
#include "cuda/kernels/float_kernels.h"
#include "cuda/kernels/format_kernels.h"
#include "cuda/kernels/grid_kernels.h"
#include "cuda/kernels/rotate_kernel.h"
#include "cuda/kernels/trace_kernels.h"
#include "cuda/launch.cuh"

namespace ptqwatch::internal {

PTQWATCH_LAUNCH(FindLargest);
PTQWATCH_LAUNCH(FitGroups);
PTQWATCH_LAUNCH(FitBlocks);
PTQWATCH_LAUNCH(FitClipped);
PTQWATCH_LAUNCH(RoundGroups);
PTQWATCH_LAUNCH(SumErrorParts);
PTQWATCH_LAUNCH(RoundNf4);
PTQWATCH_LAUNCH(RoundInt8);
PTQWATCH_LAUNCH(RotateLines<float>);
PTQWATCH_LAUNCH(RotateLines<double>);
PTQWATCH_LAUNCH(ChannelScales);
PTQWATCH_LAUNCH(PickRatio);
PTQWATCH_LAUNCH(FoldSum);
PTQWATCH_LAUNCH(SplitRows);
PTQWATCH_LAUNCH(Subtract);
PTQWATCH_LAUNCH(Widen);
PTQWATCH_LAUNCH(DotRows<float>);
PTQWATCH_LAUNCH(DotRows<double>);

}  // namespace ptqwatch::internal
