// write_events FOLDER FIRST_STEP LAST_STEP: a process that writes records like a training run, for
// tests that read its files with TensorBoard itself or kill it. LAST_STEP 0 goes on for ever.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "engine/train/metrics.h"

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: write_events FOLDER FIRST_STEP LAST_STEP\n");
        return 2;
    }
    try {
        const std::int64_t first = std::atoll(argv[2]);
        const std::int64_t last = std::atoll(argv[3]);
        ingot::MetricsWriter writer(argv[1], first);
        for (std::int64_t step = first; last == 0 || step <= last; ++step) {
            ingot::StepRecord record;
            record.step = step;
            record.loss = 4.0 / static_cast<double>(step);
            record.lr = 1e-3;
            record.epoch = 0.25 * static_cast<double>(step);
            record.tokens_per_s = 2500;
            record.grad_norm = 0.5;
            writer.step(record);
            if (step % 4 == 0) writer.validation({step, 8.0 / static_cast<double>(step), 100});
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
