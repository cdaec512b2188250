// The C interface of the native executor: no exceptions cross it; a message explains a non-zero result.
#include <stdexcept>
#include <string>

#include "c_boundary.h"
#include "decoder.h"
#include "draw.h"
#include "instruction_sets.h"

using pellucid::Decoder;
using pellucid::find_kernels;
using pellucid::guarded;
using pellucid::KernelTable;

extern "C" {

PELLUCID_EXPORT int32_t pellucid_abi_version() { return 4; }

// The instruction set that `name` (auto, amx, avx512, avx2, portable) would use here, or null when this machine lacks it.
PELLUCID_EXPORT const char* pellucid_instruction_set(const char* name) {
  const KernelTable* kernels = find_kernels(name);
  return kernels ? kernels->name : nullptr;
}

PELLUCID_EXPORT Decoder* pellucid_create(const PellucidDecoderShape* shape, const float* cosines, const float* sines,
                         const char* instruction_set, char* message, int32_t size) {
  Decoder* decoder = nullptr;
  guarded(message, size, [&] {
    const KernelTable* kernels = find_kernels(instruction_set);
    if (!kernels) throw std::invalid_argument(std::string("this machine has no ") + instruction_set);
    decoder = new Decoder(*shape, cosines, sines, kernels);
  });
  return decoder;
}

PELLUCID_EXPORT int32_t pellucid_set_weight(Decoder* decoder, const char* name, const char* encoding, const uint8_t* data,
                            int64_t num_rows, int64_t num_columns, char* message, int32_t size) {
  return guarded(message, size, [&] { decoder->set_weight(name, encoding, data, num_rows, num_columns); });
}

PELLUCID_EXPORT int32_t pellucid_forward(Decoder* decoder, const PellucidBatch* batch, float* logits, PellucidObserver observer,
                         char* message, int32_t size) {
  return guarded(message, size, [&] { decoder->forward(*batch, logits, observer); });
}

// Draws a token for each of num_draws rows of scores [..][vocab_size] into tokens; all arrays have num_draws elements.
PELLUCID_EXPORT int32_t pellucid_draw(const char* instruction_set, const float* scores, int32_t vocab_size,
                                      int32_t num_draws, const int64_t* rows, const float* temperatures,
                                      const int64_t* top_ks, const double* top_ps, const float* min_ps,
                                      const double* uniforms, int64_t* tokens, char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable* kernels = find_kernels(instruction_set);
    if (!kernels) throw std::invalid_argument(std::string("this machine has no ") + instruction_set);
    pellucid::RowDraw row_draw(*kernels, vocab_size);
    for (int i = 0; i < num_draws; ++i) {
      const pellucid::DrawSettings settings{temperatures[i], top_ks[i], top_ps[i], min_ps[i]};
      tokens[i] = row_draw.draw(scores + rows[i] * vocab_size, settings, uniforms[i]);
    }
  });
}

PELLUCID_EXPORT void pellucid_destroy(Decoder* decoder) { delete decoder; }
}
