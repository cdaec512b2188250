#include "kernels.inc"

namespace pellucid {
PELLUCID_TABLE(avx2_kernels, "avx2")
}
