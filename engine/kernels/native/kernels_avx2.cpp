#include "kernel_table.h"
#if defined(__AVX2__)
#include "kernels.inc"
#endif

namespace pellucid {
#if defined(__AVX2__)
PELLUCID_TABLE(avx2_kernels, "avx2")
#else
const KernelTable* avx2_kernels() { return nullptr; }
#endif
}  // namespace pellucid
