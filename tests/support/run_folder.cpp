#include "tests/support/run_folder.h"

#include <filesystem>
#include <fstream>

#include "data/shard_writer.h"
#include "engine/core/rng.h"

namespace ingot::test {
namespace {

constexpr int kVocabulary = 64;

// Each token has two possible successors, so the loss falls from log 64 towards log 2.
std::vector<std::int64_t> markov_chain(std::int64_t count, std::uint64_t seed) {
    std::vector<std::int64_t> tokens = {1};
    for (std::int64_t i = 1; i < count; ++i) {
        const double u =
            philox_uniform(seed, random_stream(RandomUse::test, 9), static_cast<std::uint64_t>(i));
        tokens.push_back((tokens.back() * 5 + (u < 0.5 ? 3 : 17)) % kVocabulary);
    }
    return tokens;
}

}  // namespace

RunScratch::RunScratch(const std::string& name, std::int64_t train_tokens, std::int64_t val_tokens)
    : name_(name) {
    std::filesystem::create_directories(path());
    ShardHeader header;
    header.vocab_size = kVocabulary;
    write_token_shard(path("train_000.bin"), header, markov_chain(train_tokens, 1));
    header.split = Split::validation;
    write_token_shard(path("val_000.bin"), header, markov_chain(val_tokens, 2));
}

TrainConfig RunScratch::config(const std::string& run) const {
    TrainConfig config;
    config.model.preset = "gpt2-tiny";
    config.data.train = path("train_*.bin");
    config.data.val = path("val_*.bin");
    config.train.device = TrainConfig::Train::Device::cpu;
    config.train.steps = 5;
    config.train.seq_len = 16;
    config.train.micro_batch = 4;
    config.optimizer.lr = 1e-3;
    config.sample.tokens = 0;
    config.log.dir = path(run);
    check_config(config, ConfigUse::train);
    return config;
}

std::vector<nlohmann::json> RunScratch::records(const std::string& run,
                                                const std::string& key) const {
    std::vector<nlohmann::json> found;
    std::ifstream file(path(run) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
        const nlohmann::json record = nlohmann::json::parse(line);
        if (record.contains(key)) found.push_back(record);
    }
    return found;
}

std::unique_ptr<Trainer> train(const TrainConfig& config, const CpuContextOptions& options) {
    Log log;
    auto trainer = std::make_unique<Trainer>(config, log, options);
    trainer->run();
    return trainer;
}

std::vector<float> state_of(Trainer& trainer) {
    std::vector<float> all;
    for (int g = 0; g < trainer.store().num_groups(); ++g) {
        for (const Tensor& tensor :
             {trainer.store().master(g), trainer.store().m(g), trainer.store().v(g)}) {
            std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
            read_floats(trainer.context(), tensor, values.data());
            all.insert(all.end(), values.begin(), values.end());
        }
    }
    return all;
}

}  // namespace ingot::test
