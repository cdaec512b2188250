#include "instruction_sets.h"

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

bool cpu_has_avx512_bf16() {
#if defined(__x86_64__)
  return cpu_has_avx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// Whether the processor has AMX with bytes and bfloat16 and lets this process use its tile registers. Linux keeps their
// 8 KiB out of a process's saved state until it asks; it refuses when a signal stack is too small for them.
bool may_use_amx() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;  // of cpuid leaf 7
  constexpr unsigned kNeeded = kAmxBf16 | kAmxTile | kAmxInt8;
  constexpr unsigned kOsUsesXsave = 1u << 27;  // of leaf 1
  constexpr unsigned kTileState = 3u << 17;    // of XCR0
  constexpr long kRequestPermission = 0x1023, kTileData = 18;                            // ARCH_REQ_XCOMP_PERM
  unsigned a, b, c, d, low, high;
  if (!cpu_has_avx512_bf16() || !__get_cpuid(1, &a, &b, &c, &d) || !(c & kOsUsesXsave)) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kNeeded) != kNeeded) return false;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) return false;
  static const bool is_permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return is_permitted;
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
  if ((name == "auto" || name == "amx") && amx_kernels() && may_use_amx()) return amx_kernels();
  if ((name == "auto" || name == "avx512_bf16") && cpu_has_avx512_bf16() && avx512_bf16_kernels()) {
    return avx512_bf16_kernels();
  }
  if ((name == "auto" || name == "avx512") && cpu_has_avx512() && avx512_kernels()) {
    return avx512_kernels();
  }
  if ((name == "auto" || name == "avx2") && cpu_has_avx2() && avx2_kernels()) return avx2_kernels();
  if (name == "auto" || name == "portable") return portable_kernels();
  return nullptr;
}

}  // namespace pellucid
