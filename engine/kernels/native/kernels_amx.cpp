#include "kernel_table.h"
#if defined(__AMX_INT8__)
#include "kernels.inc"
#endif

namespace pellucid {
#if defined(__AMX_INT8__)
PELLUCID_TABLE(amx_kernels, "amx")
#else
const KernelTable* amx_kernels() { return nullptr; }
#endif
}  // namespace pellucid
