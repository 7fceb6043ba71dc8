#ifndef PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_
#define PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_

// Include before any Highway header. Machines with only SSSE3 take the portable path: they are too
// rare to justify another copy of every kernel. The portable path uses the compiler's baseline.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif

#endif  // PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_
