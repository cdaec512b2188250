#include "kernel_table.h"
#if defined(__AVX512BF16__)
#include "kernels.inc"
#endif

namespace pellucid {
#if defined(__AVX512BF16__)
PELLUCID_TABLE(avx512_bf16_kernels, "avx512_bf16")
#else
const KernelTable* avx512_bf16_kernels() { return nullptr; }
#endif
}  // namespace pellucid
