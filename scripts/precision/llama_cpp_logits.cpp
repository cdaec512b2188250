// Writes the logits that llama.cpp gives for windows of tokens, so that its rounding can be measured as ours is.
//
//   llama_cpp_logits MODEL NUM_THREADS WINDOW < int32 token ids > float32 logits [windows, WINDOW, vocabulary]
//
// Flash attention and a 16-bit KV cache, as its server runs. Built against a llama.cpp outside this project.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

static int fail(const char* what) {
    std::fprintf(stderr, "llama_cpp_logits: %s\n", what);
    return 1;
}

int main(int argc, char** argv) {
    if (argc != 4) return fail("MODEL NUM_THREADS WINDOW are needed");
    const int num_threads = std::atoi(argv[2]), window = std::atoi(argv[3]);
    llama_backend_init();
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    llama_model* model = llama_model_load_from_file(argv[1], model_params);
    if (!model) return fail("the model can't be loaded");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = window;
    params.n_threads = params.n_threads_batch = num_threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    llama_context* context = llama_init_from_model(model, params);
    if (!context) return fail("no context");
    const size_t num_logits = size_t(window) * llama_vocab_n_tokens(llama_model_get_vocab(model));

    llama_batch batch = llama_batch_init(window, 0, 1);
    std::vector<int32_t> tokens(window);
    while (std::fread(tokens.data(), sizeof(int32_t), window, stdin) == size_t(window)) {
        llama_memory_clear(llama_get_memory(context), true);
        batch.n_tokens = window;
        for (int i = 0; i < window; i++) {
            batch.token[i] = tokens[i];
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(context, batch)) return fail("a window can't be computed");
        if (std::fwrite(llama_get_logits(context), sizeof(float), num_logits, stdout) != num_logits) return 1;
        std::fflush(stdout);
    }
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
