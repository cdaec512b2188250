#include "kernel_table.h"
#if defined(__AVX512VNNI__)
#include "kernels.inc"
#endif

namespace pellucid {
#if defined(__AVX512VNNI__)
PELLUCID_TABLE(avx512_kernels, "avx512")
#else
const KernelTable* avx512_kernels() { return nullptr; }
#endif
}  // namespace pellucid
