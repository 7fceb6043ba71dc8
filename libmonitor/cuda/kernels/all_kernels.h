#ifndef PTQWATCH_CUDA_KERNELS_ALL_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_ALL_KERNELS_H_

#include <variant>

#include "cuda/kernels/awq_kernels.h"
#include "cuda/kernels/cholesky_kernel.h"
#include "cuda/kernels/clip_kernels.h"
#include "cuda/kernels/factor_kernels.h"
#include "cuda/kernels/float_kernels.h"
#include "cuda/kernels/format_kernels.h"
#include "cuda/kernels/gptq_kernels.h"
#include "cuda/kernels/gram_kernels.h"
#include "cuda/kernels/grid_kernels.h"
#include "cuda/kernels/panel_kernels.h"
#include "cuda/kernels/reduce_kernels.h"
#include "cuda/kernels/rotate_kernel.h"
#include "cuda/kernels/trace_kernels.h"
#include "cuda/kernels/vector_kernels.h"

namespace ptqwatch::internal {

/// Every kernel that a device can run.
using Kernel = std::variant<
    StageRows, FlagRows, SumColumns, AddColumns, MendSlices, AddPanel, MirrorSum, DescribeInputs,
    RankColumns, FindDuplicates, BuildDamped, FactorBlock, PackFeedback, PackWeight, QuantizeBlock,
    UnpackCodes, FindLargest, FitGroups, FitBlocks, FitClipped, RoundGroups, SumErrorParts,
    RoundNf4, RoundInt8, ChannelScales, PickRatio, FoldSum, SplitRows, Subtract, Widen,
    DotRows<float>, DotRows<double>, Collapse, FindNonFinite<float>, FindNonFinite<double>,
    SquaredDistance, DrawSigns<float>, DrawSigns<double>, DotPieces<float>, DotPieces<double>,
    AddScaled<float>, AddScaled<double>, RotateLines<float>, RotateLines<double>>;

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_ALL_KERNELS_H_
