// The C interface of the native executor: no exceptions cross it; a message explains a non-zero result.
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include "decoder.h"

namespace {

using pellucid::Decoder;
using pellucid::KernelTable;

void explain(const char* what, char* message, int size) {
  if (size > 0) {
    std::strncpy(message, what, size_t(size) - 1);
    message[size - 1] = '\0';
  }
}

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

const KernelTable* find_kernels(const std::string& name) {
  if ((name == "auto" || name == "avx512") && cpu_has_avx512() && pellucid::avx512_kernels()) {
    return pellucid::avx512_kernels();
  }
  if ((name == "auto" || name == "avx2") && cpu_has_avx2() && pellucid::avx2_kernels()) return pellucid::avx2_kernels();
  if (name == "auto" || name == "portable") return pellucid::portable_kernels();
  return nullptr;
}

template <typename Body>
int guarded(char* message, int size, Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    explain(error.what(), message, size);
    return 1;
  }
}

}  // namespace

extern "C" {

int32_t pellucid_abi_version() { return 1; }

// The instruction set that `name` (auto, avx512, avx2, portable) would use here, or null when this machine lacks it.
const char* pellucid_instruction_set(const char* name) {
  const KernelTable* kernels = find_kernels(name);
  return kernels ? kernels->name : nullptr;
}

Decoder* pellucid_create(const PellucidDecoderShape* shape, const float* cosines, const float* sines,
                         const char* instruction_set, char* message, int32_t size) {
  Decoder* decoder = nullptr;
  guarded(message, size, [&] {
    const KernelTable* kernels = find_kernels(instruction_set);
    if (!kernels) throw std::invalid_argument(std::string("this machine has no ") + instruction_set);
    decoder = new Decoder(*shape, cosines, sines, kernels);
  });
  return decoder;
}

int32_t pellucid_set_weight(Decoder* decoder, const char* name, const char* encoding, const uint8_t* data,
                            int64_t num_rows, int64_t num_columns, char* message, int32_t size) {
  return guarded(message, size, [&] { decoder->set_weight(name, encoding, data, num_rows, num_columns); });
}

int32_t pellucid_forward(Decoder* decoder, const PellucidBatch* batch, float* logits, PellucidObserver observer,
                         char* message, int32_t size) {
  return guarded(message, size, [&] { decoder->forward(*batch, logits, observer); });
}

void pellucid_destroy(Decoder* decoder) { delete decoder; }
}
