#include "kernels.inc"

namespace pellucid {
#if defined(__AVX2__)
PELLUCID_TABLE(avx2_kernels, "avx2")
#else
const KernelTable* avx2_kernels() { return nullptr; }
#endif
}  // namespace pellucid
