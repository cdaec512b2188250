#include "instruction_sets.h"

namespace pellucid {
namespace {

bool cpu_has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool cpu_has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

}  // namespace

const KernelTable* find_kernels(const std::string& name) {
  if ((name == "auto" || name == "avx512") && cpu_has_avx512() && avx512_kernels()) {
    return avx512_kernels();
  }
  if ((name == "auto" || name == "avx2") && cpu_has_avx2() && avx2_kernels()) return avx2_kernels();
  if (name == "auto" || name == "portable") return portable_kernels();
  return nullptr;
}

}  // namespace pellucid
