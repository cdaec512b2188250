#pragma once
#include <string>

#include "kernel_table.h"

namespace pellucid {

// The kernels of `amx`, `avx512`, `avx2` or `portable`, or for `auto` the best of them; nullptr when this machine lacks it.
const KernelTable* find_kernels(const std::string& name);

}  // namespace pellucid
