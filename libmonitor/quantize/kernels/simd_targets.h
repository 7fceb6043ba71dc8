#ifndef PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_
#define PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_

// Include before any Highway header. Machines with only SSSE3 take the portable path: they are too
// rare to justify another copy of every kernel. The portable path uses the compiler's baseline.
// SVE's vectors can be no members of a class, and on Grace they are as wide as NEON's.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

#endif  // PTQWATCH_QUANTIZE_KERNELS_SIMD_TARGETS_H_
