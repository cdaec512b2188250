#include "kernels.inc"

namespace pellucid {
PELLUCID_TABLE(portable_kernels, "portable")
}
