// ./train_gpt [run.json] [--section.key=value ...] [--plan] [--help] [--version]
#include <cstdlib>
#include <iostream>

#include "engine/train/cli.h"
#include "engine/train/console.h"
#include "engine/train/launch.h"
#include "engine/train/stop_signal.h"
#include "engine/train/trainer.h"
#include "kernels/blas.h"
#include "tools/main.h"

namespace {

using namespace ingot;

void set_threads(const TrainConfig& config) {
    if (config.train.threads > 0) {
        blas::set_num_threads(static_cast<int>(config.train.threads));
    }
}

int plan(const TrainConfig& config) {
    Log log(0, stdout);
    set_threads(config);
    const RunSetup setup = set_up_plan(config, log);
    const MemoryRequest request = setup.memory_request(config);
    const MemoryPlan memory = plan_memory(request);
    log.info(batch_line(config, request.world_size));
    log.info(format_plan(request, memory));
    require_fits(request, memory);
    for (const MemoryRemedy& remedy : memory_remedies(request)) {
        log.info(str("  ", remedy.change, ": ", format_bytes(remedy.device_bytes)));
    }
    return 0;
}

int train(const TrainConfig& config) {
    block_stop_signals();  // before the threads of OpenBLAS and OpenMP are made
    require_single_rank(read_launcher());
    set_threads(config);
    blas::verify();
    Log log(0, stdout);
    Trainer trainer(config, log);
    trainer.run();
    // As a shell reports a process that a signal has ended.
    return trainer.stop_signal() == 0 ? 0 : 128 + trainer.stop_signal();
}

int body(int argc, char** argv) {
    const CommandLine command = parse_command_line(argc, argv);
    switch (command.action) {
        case CommandLine::Action::help:
            std::cout << help_text();
            return 0;
        case CommandLine::Action::help_markdown:
            std::cout << help_markdown();
            return 0;
        case CommandLine::Action::version:
            std::cout << version_text() << "\n";
            return 0;
        case CommandLine::Action::plan:
            return plan(load_config(command));
        case CommandLine::Action::train:
            return train(load_config(command));
    }
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    return ingot::run_main([&] { return body(argc, argv); });
}
