#include "bench/kernels/cases.h"

namespace ingot::bench {

ModelSizes sizes_of(Device device) {
    ModelSizes m{.device = device,
                 .B = 2,
                 .T = 256,
                 .C = 768,
                 .num_heads = 12,
                 .V = 50257,
                 .Vp = 50304,
                 .num_parameters = 12'000'000,
                 .chunk = 256};
    if (device == Device::cuda) {
        m.B = 64;
        m.T = 1024;
        m.num_parameters = 124'475'904;
        m.chunk = 4096;
    }
    return m;
}

std::vector<Case> all_cases(Device device) {
    const ModelSizes m = sizes_of(device);
    std::vector<Case> cases;
    for (const auto add :
         {add_adamw, add_attention, add_bias_gradient, add_cast, add_cross_entropy, add_embedding,
          add_gelu, add_global_norm, add_layernorm, add_lm_head, add_matmul, add_sum}) {
        add(cases, m);
    }
    return cases;
}

}  // namespace ingot::bench
