// What tests of whole runs need: a scratch folder with small token shards in it, and the records
// that a run wrote; a run and the state it ends with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/train/config.h"
#include "engine/train/trainer.h"
#include "tests/support/temp_folder.h"

namespace ingot::test {

class RunScratch {
  public:
    // Makes a folder of its own, called `name`, with FOLDER/train_000.bin and FOLDER/val_000.bin:
    // ids of a Markov chain over 64 tokens, which a small model learns in a few steps.
    explicit RunScratch(const std::string& name,
                        std::int64_t train_tokens = 4001,
                        std::int64_t val_tokens = 201);

    std::string path(const std::string& file = "") const { return folder_ / (name_ + "/" + file); }
    // gpt2-tiny on these shards: seq_len 16, micro-batch 4, 5 steps, logs in FOLDER/<run>.
    TrainConfig config(const std::string& run) const;
    // The objects of FOLDER/<run>/metrics.jsonl that have `key`.
    std::vector<nlohmann::json> records(const std::string& run, const std::string& key) const;

  private:
    TempFolder folder_;
    std::string name_;
};

// A whole run, without a console.
std::unique_ptr<Trainer> train(const TrainConfig& config, const CpuContextOptions& options = {});
// Master weights and moments of all groups, one after the other.
std::vector<float> state_of(Trainer& trainer);

}  // namespace ingot::test
