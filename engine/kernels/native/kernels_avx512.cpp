#include "kernels.inc"

namespace pellucid {
PELLUCID_TABLE(avx512_kernels, "avx512")
}
