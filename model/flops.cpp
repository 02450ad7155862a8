#include "model/flops.h"

namespace ingot {

double train_flops_per_token(const DecoderConfig& config,
                             std::int64_t num_parameters,
                             std::int64_t T) {
    return 6.0 * static_cast<double>(num_parameters) +
           12.0 * config.num_layers * static_cast<double>(config.attention_channels()) *
               static_cast<double>(T);
}

}  // namespace ingot
