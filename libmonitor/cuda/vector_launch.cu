#include "cuda/kernels/vector_kernels.h"
#include "cuda/launch.cuh"

namespace ptqwatch::internal {

PTQWATCH_LAUNCH(DrawSigns<float>);
PTQWATCH_LAUNCH(DrawSigns<double>);
PTQWATCH_LAUNCH(DotPieces<float>);
PTQWATCH_LAUNCH(DotPieces<double>);
PTQWATCH_LAUNCH(AddScaled<float>);
PTQWATCH_LAUNCH(AddScaled<double>);

}  // namespace ptqwatch::internal
