// Goal: batches are a function of (seed, step, micro-step, rank) alone: not of threads, prefetch,
// micro-batch or ranks; errors of the data reach the step that needs it. Method: the shared tables,
// and comparisons between ways to read the same steps.
#include <chrono>
#include <fstream>
#include <map>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/loader.h"
#include "data/token_hash.h"
#include "engine/core/token_order.h"
#include "tests/data/shard_fixture.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

using Ids = std::vector<std::int32_t>;

Ids copy_of(const ConstTensor& tensor) {
    const std::int32_t* ids = tensor.ptr<std::int32_t>();
    return {ids, ids + tensor.numel()};
}

// One row, inputs then targets.
Ids row_of(const Batch& batch, std::int64_t b, std::int64_t T) {
    Ids row = copy_of(batch.inputs.slice(b, b + 1));
    const Ids targets = copy_of(batch.targets.slice(b, b + 1));
    row.insert(row.end(), targets.begin(), targets.end());
    CHECK(static_cast<std::int64_t>(row.size()) == 2 * T);
    return row;
}

struct Steps {
    std::vector<std::vector<Ids>> samples;  // [step][k]
    std::vector<std::uint64_t> hashes;      // [step], over all ranks

    bool operator==(const Steps&) const = default;
};

// The first `count` steps as `world_size` ranks see them, put together by sample number.
Steps read_steps(const TokenSet& set, LoaderConfig config, int world_size, std::int64_t count) {
    Steps steps;
    steps.samples.assign(static_cast<std::size_t>(count),
                         std::vector<Ids>(static_cast<std::size_t>(config.global_batch)));
    steps.hashes.assign(static_cast<std::size_t>(count), 0);
    config.world_size = world_size;
    for (int rank = 0; rank < world_size; ++rank) {
        config.rank = rank;
        Loader loader(set, config);
        for (std::int64_t step = 0; step < count; ++step) {
            for (std::int64_t m = 0; m < loader.grad_accum_steps(); ++m) {
                CHECK(loader.step() == step);
                const Batch batch = loader.next();
                CHECK(batch.step == step);
                CHECK(batch.micro_step == m);
                CHECK(batch.epoch == step / loader.steps_per_epoch());
                CHECK(batch.valid_targets == config.micro_batch * config.seq_len);
                steps.hashes[step] += batch.token_hash;
                for (std::int64_t b = 0; b < config.micro_batch; ++b) {
                    const std::int64_t k = (m * world_size + rank) * config.micro_batch + b;
                    steps.samples[step][k] = row_of(batch, b, config.seq_len);
                }
            }
        }
    }
    return steps;
}

nlohmann::json read_json(const std::string& path) {
    std::ifstream file(path);
    REQUIRE(file);
    return nlohmann::json::parse(file);
}

}  // namespace

TEST_CASE("loader: steps per epoch follow the table, and too little data is refused (B25)") {
    const std::string folder = case_file("B25_shard_short/");
    const auto expected = read_json(folder + "expected.json");
    struct Table {
        const char* name;
        int R;
        int B;
    };
    for (const Table& table : {Table{"table_R1_B1_T8", 1, 1}, Table{"table_R1_B2_T8", 1, 2},
                               Table{"table_R2_B1_T8", 2, 1}}) {
        for (const auto& [tokens, steps] : expected.at(table.name).items()) {
            CAPTURE(table.name);
            CAPTURE(tokens);
            const TokenSet set({.files = folder + "tokens_" + tokens + ".bin"});
            LoaderConfig config{.seq_len = 8,
                                .micro_batch = table.B,
                                .global_batch = table.R * table.B,
                                .world_size = table.R,
                                .memory = {}};
            for (int rank = 0; rank < table.R; ++rank) {
                config.rank = rank;
                if (steps > 0) {
                    CHECK(Loader(set, config).steps_per_epoch() == steps);
                    continue;
                }
                const std::string error = error_of([&] { Loader loader(set, config); });
                CAPTURE(error);
                CHECK(contains(error, "data.too_short: data.train: "));
                CHECK(contains(error, "tokens_" + tokens + ".bin (" + tokens + " tokens)"));
                CHECK(contains(error,
                               std::to_string(8 * table.R * table.B + 1) + " tokens are needed"));
            }
        }
    }
    const TokenSet set({.files = folder + "tokens_9.bin"});
    Loader loader(set, {.seq_len = 8, .shuffle = false, .memory = {}});
    const Batch batch = loader.next();
    CHECK(copy_of(batch.inputs) == expected["first_batch_tokens_9_T8"]["x"].get<Ids>());
    CHECK(copy_of(batch.targets) == expected["first_batch_tokens_9_T8"]["y"].get<Ids>());
}

TEST_CASE("loader: ranks read the listed windows and end their epoch together (B26)") {
    const std::string folder = case_file("B26_shard_tail/");
    const auto expected = read_json(folder + "expected.json");
    const std::vector<std::int64_t> ids = read_all(TokenShard(folder + "tokens_41.bin"));
    const TempFolder cut;  // the same stream in two shards: windows cross their border
    write_llmc_shard(cut / "0.bin", 2, {ids.begin(), ids.begin() + 13});
    write_llmc_shard(cut / "1.bin", 2, {ids.begin() + 13, ids.end()});
    for (const std::string& files : {folder + "tokens_41.bin", cut / "*.bin"}) {
        const TokenSet set({.files = files});
        LoaderConfig config{
            .seq_len = 8, .global_batch = 2, .world_size = 2, .shuffle = false, .memory = {}};
        for (int rank = 0; rank < 2; ++rank) {
            config.rank = rank;
            Loader loader(set, config);
            CHECK(loader.steps_per_epoch() == expected["steps"]);
            for (const char* step : {"step0", "step1"}) {
                const Batch batch = loader.next();
                const std::string name = "rank" + std::to_string(rank);
                CHECK(copy_of(batch.inputs) == expected[step][name + "_x"].get<Ids>());
                if (rank == 1)
                    CHECK(copy_of(batch.targets) == expected[step]["rank1_y"].get<Ids>());
            }
            const Batch next_epoch = loader.next();
            CHECK(next_epoch.epoch == 1);
            CHECK(copy_of(next_epoch.inputs) ==
                  expected["step0"]["rank" + std::to_string(rank) + "_x"].get<Ids>());
        }
        CHECK(Loader(set, {.seq_len = 8, .memory = {}}).steps_per_epoch() == expected["R1_steps"]);
    }
}

TEST_CASE("loader: workers, prefetch and held batches change nothing") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(5000), random_ids(1500, 5000, 1));
    write_token_shard(folder / "b.bin", shard_facts(5000), random_ids(700, 5000, 2));
    const TokenSet set({.files = folder / "*.bin"});
    const LoaderConfig base{
        .seq_len = 16, .micro_batch = 2, .global_batch = 8, .seed = 9, .memory = {}};
    LoaderConfig config = base;
    config.workers = 0;
    const Steps expected = read_steps(set, config, 1, 40);  // more than two epochs of 17 steps
    for (const int workers : {1, 2, 5}) {
        for (const int prefetch : {1, 3, 8}) {
            for (const int held : {1, 2}) {
                config = base;
                config.workers = workers;
                config.prefetch = prefetch;
                config.held = held;
                CHECK(read_steps(set, config, 1, 40) == expected);
            }
        }
    }
    config = base;
    config.seed = 10;
    CHECK_FALSE(read_steps(set, config, 1, 40) == expected);
}

TEST_CASE(
    "loader: the samples and the hash of a step are the same for all ranks and micro-batches") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(5000), random_ids(3000, 5000, 1));
    const TokenSet set({.files = folder / "a.bin"});
    LoaderConfig config{
        .seq_len = 10, .micro_batch = 8, .global_batch = 8, .seed = 3, .memory = {}};
    const Steps expected = read_steps(set, config, 1, 50);
    for (const auto& [ranks, micro_batch] :
         {std::pair<int, int>{1, 1}, {1, 2}, {2, 1}, {2, 4}, {4, 1}, {4, 2}, {8, 1}}) {
        config.micro_batch = micro_batch;
        CHECK(read_steps(set, config, ranks, 50) == expected);
    }
    // Every sample is one window of the stream, once an epoch.
    std::map<Ids, int> visits;
    for (std::int64_t step = 0; step < 37; ++step)  // floor(299 / 8)
        for (const Ids& sample : expected.samples[step])
            ++visits[sample];
    CHECK(visits.size() == 37 * 8);
    Ids window(11);
    int found = 0;
    for (std::int64_t w = 0; w < set.num_windows(10); ++w) {
        set.read(w * 10, 11, window.data());
        Ids sample(window.begin(), window.end() - 1);
        sample.insert(sample.end(), window.begin() + 1, window.end());
        found += static_cast<int>(visits.count(sample));
    }
    CHECK(found == 37 * 8);
}

TEST_CASE("loader: the hash of a step is the documented sum") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(5000), random_ids(100, 5000, 1));
    const TokenSet set({.files = folder / "a.bin"});
    Loader loader(set,
                  {.seq_len = 9, .micro_batch = 2, .global_batch = 4, .seed = 3, .memory = {}});
    loader.seek(5);
    for (std::int64_t m = 0; m < 2; ++m) {
        const Batch batch = loader.next();
        std::uint64_t sum = 0;
        for (std::int64_t b = 0; b < 2; ++b) {
            Ids window = copy_of(batch.inputs.slice(b, b + 1));
            window.push_back(copy_of(batch.targets.slice(b, b + 1)).back());
            sum += sample_hash(window.data(), 10, 5 * 4 + m * 2 + b);
        }
        CHECK(batch.token_hash == sum);
    }
}

TEST_CASE("loader: seek gives the batches that reading on would have given, forward and back") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(5000), random_ids(2000, 5000, 1));
    const TokenSet set({.files = folder / "a.bin"});
    for (const int workers : {0, 3}) {
        const LoaderConfig config{.seq_len = 16,
                                  .micro_batch = 2,
                                  .global_batch = 6,
                                  .seed = 9,
                                  .workers = workers,
                                  .memory = {}};
        const Steps expected = read_steps(set, config, 1, 60);
        Loader loader(set, config);
        for (const std::int64_t step : {59, 0, 20, 21, 22, 5, 41, 41}) {
            loader.seek(step);
            CHECK(loader.step() == step);
            for (std::int64_t m = 0; m < 3; ++m) {
                const Batch batch = loader.next();
                CHECK(batch.step == step);
                for (std::int64_t b = 0; b < 2; ++b)
                    CHECK(row_of(batch, b, 16) == expected.samples[step][m * 2 + b]);
            }
        }
        CHECK(contains(error_of([&] { loader.seek(-1); }), "cannot go to step -1"));
    }
}

TEST_CASE("loader: a batch stays as it is for `held` calls of next(), in the caller's memory") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(5000), random_ids(20000, 5000, 1));
    const TokenSet set({.files = folder / "a.bin"});
    LoaderConfig config{.seq_len = 4, .workers = 3, .prefetch = 2, .held = 2, .memory = {}};
    std::vector<std::int32_t> memory(static_cast<std::size_t>(loader_memory_numel(config)));
    CHECK(memory.size() == 4 * 4 * 4);
    config.memory = make_tensor(memory.data(), DType::i32, {64}, Device::cpu);
    Loader loader(set, config);
    Batch before = loader.next();
    Ids before_ids = copy_of(before.inputs);
    for (int i = 0; i < 2000; ++i) {
        const Batch batch = loader.next();
        const std::int32_t* at = batch.inputs.ptr<std::int32_t>();
        CHECK_FALSE((at < memory.data() || at + 4 > memory.data() + memory.size()));
        const Ids ids = copy_of(batch.inputs);
        std::this_thread::yield();
        if (copy_of(before.inputs) != before_ids) FAIL_CHECK("batch " << i << " was overwritten");
        before = batch;
        before_ids = ids;
    }
}

TEST_CASE("loader: the order of a batch is that of its inputs") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(50), random_ids(20000, 50, 1));
    const TokenSet set({.files = folder / "a.bin"});
    for (const int workers : {0, 3}) {
        Loader loader(set, {.seq_len = 17,
                            .micro_batch = 5,
                            .global_batch = 10,
                            .workers = workers,
                            .memory = {}});
        for (int i = 0; i < 50; ++i) {
            const Batch batch = loader.next();
            const Ids ids = copy_of(batch.inputs);
            CHECK(batch.order.dim(0) == 85);
            CHECK(copy_of(batch.order) == token_order(ids));
        }
    }
}

TEST_CASE("loader: numbers that cannot work are refused with both") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(5000), random_ids(2000, 5000, 1));
    const TokenSet set({.files = folder / "a.bin"});
    const auto error_with = [&](const LoaderConfig& config) {
        return error_of([&] { Loader loader(set, config); });
    };
    CHECK(contains(error_with({.seq_len = 0, .memory = {}}), "seq_len = 0, micro_batch = 1"));
    CHECK(contains(error_with({.seq_len = 8, .rank = 3, .world_size = 3, .memory = {}}),
                   "rank = 3, allowed 0..2"));
    CHECK(contains(
        error_with(
            {.seq_len = 8, .micro_batch = 3, .global_batch = 8, .world_size = 2, .memory = {}}),
        "global_batch = 8 is not a multiple of micro_batch 3 x 2 ranks = 6"));
    CHECK(contains(error_with({.seq_len = 8, .prefetch = 0, .memory = {}}), "prefetch = 0"));
    std::vector<std::int32_t> memory(10);
    LoaderConfig small{.seq_len = 8, .memory = {}};
    small.memory = make_tensor(memory.data(), DType::i32, {10}, Device::cpu);
    CHECK(contains(error_with(small), "memory is (10) i32 on cpu, needed are 160 i32"));
}

TEST_CASE("loader: a shard truncated during the run ends it within a step, naming the file (B28)") {
    const TempFolder folder;
    for (const int workers : {0, 2}) {
        const std::string path = folder / "t.bin";
        write_token_shard(path, shard_facts(5000), random_ids(40000, 5000, 1));
        const TokenSet set({.files = path});
        const LoaderConfig config{.seq_len = 64,
                                  .micro_batch = 4,
                                  .global_batch = 8,
                                  .workers = workers,
                                  .prefetch = 60,
                                  .memory = {}};
        Loader loader(set, config);
        for (int i = 0; i < 10; ++i)
            loader.next();
        REQUIRE(truncate(path.c_str(), 5000) == 0);
        std::string error = "no error";
        int batches_after = 0;
        // Of the 60 batches that were prepared, those still come that are taken before a worker
        // meets the truncation.
        for (; batches_after < 40 && error == "no error"; ++batches_after) {
            error = error_of([&] { loader.next(); });
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        CAPTURE(error);
        CHECK(contains(error, "shard.truncated: " + path + " has 5000 bytes now and had 84096"));
        CHECK(error_of([&] { loader.next(); }) == error);  // it does not go on
        unlink(path.c_str());
    }
}

TEST_CASE("loader: the time that next() was blocked is told, and is short when batches are ready") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(5000), random_ids(20000, 5000, 1));
    const TokenSet set({.files = folder / "a.bin"});
    Loader loader(set, {.seq_len = 64, .micro_batch = 4, .global_batch = 4, .memory = {}});
    double waits = 0.0;
    for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        const Batch batch = loader.next();
        CHECK(batch.wait_ms >= 0.0);
        waits += batch.wait_ms;
    }
    CHECK(waits < 50.0);  // of 100 ms
}
