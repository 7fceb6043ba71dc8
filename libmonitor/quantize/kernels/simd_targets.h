#ifndef PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_
#define PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_

// Include before any Highway header. SSSE3-only machines take the portable path: they are too rare
// for one more copy of every kernel. The portable path itself is what a compiler's baseline gives.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif

#endif  // PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_
