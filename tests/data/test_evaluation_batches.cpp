// Goal: every window of a held-out set is evaluated exactly once, in order, on any number of ranks,
// partial batches included (B73). Method: sets of 7, 3 and 1 windows with batches of 4.
#include <map>

#include <doctest/doctest.h>

#include "data/evaluation_batches.h"
#include "tests/data/shard_fixture.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

constexpr std::int64_t kT = 8;

struct Visits {
    std::map<std::int64_t, int> windows;  // window -> times
    std::int64_t valid_targets = 0;
    std::int64_t batches = 0;  // of one rank
};

// Reads all batches of all ranks and checks each row against `ids`.
Visits visit(const TokenSet& set,
             const std::vector<std::int64_t>& ids,
             std::int64_t B,
             int ranks,
             std::int64_t max_batches = 0) {
    Visits visits;
    for (int rank = 0; rank < ranks; ++rank) {
        EvaluationBatches batches(set, {.seq_len = kT,
                                        .micro_batch = B,
                                        .rank = rank,
                                        .world_size = ranks,
                                        .max_batches = max_batches,
                                        .memory = {}});
        if (rank > 0) CHECK(batches.num_batches() == visits.batches);
        visits.batches = batches.num_batches();
        for (std::int64_t i = 0; i < batches.num_batches(); ++i) {
            const EvaluationBatch batch = batches.read(i);
            CHECK(batch.valid_targets == batch.rows * kT);
            visits.valid_targets += batch.valid_targets;
            const std::int32_t* inputs = batch.inputs.ptr<std::int32_t>();
            const std::int32_t* targets = batch.targets.ptr<std::int32_t>();
            for (std::int64_t b = 0; b < B; ++b) {
                const bool exists = b < batch.rows;
                const std::int64_t window = exists ? (i * ranks + rank) * B + b : 0;
                if (exists) ++visits.windows[window];
                for (std::int64_t t = 0; t < kT; ++t) {
                    CHECK(inputs[b * kT + t] == ids[window * kT + t]);
                    CHECK(targets[b * kT + t] ==
                          (exists ? ids[window * kT + t + 1] : std::int64_t{kNoTarget}));
                }
            }
        }
    }
    return visits;
}

}  // namespace

TEST_CASE("evaluation batches: 7, 3 and 1 windows with batches of 4 all count, on 1 to 5 ranks") {
    const TempFolder folder;
    for (const std::int64_t windows : {7, 3, 1, 8}) {
        const std::vector<std::int64_t> ids = random_ids(windows * kT + 1 + 5, 1000, 8);
        write_token_shard(folder / "v.bin", shard_facts(1000), ids);
        const TokenSet set({.files = folder / "v.bin", .role = "val"});
        for (const int ranks : {1, 2, 5}) {
            const Visits visits = visit(set, ids, 4, ranks);
            CHECK(visits.batches == (windows + 4 * ranks - 1) / (4 * ranks));
            CHECK(visits.valid_targets == windows * kT);
            CHECK(static_cast<std::int64_t>(visits.windows.size()) == windows);
            for (const auto& [window, times] : visits.windows)
                CHECK(times == 1);
        }
    }
}

TEST_CASE("evaluation batches: a limit takes the first windows, the same on every run") {
    const TempFolder folder;
    const std::vector<std::int64_t> ids = random_ids(20 * kT + 1, 1000, 8);
    write_token_shard(folder / "v.bin", shard_facts(1000), ids);
    const TokenSet set({.files = folder / "v.bin", .role = "val"});
    const Visits visits = visit(set, ids, 4, 2, 2);
    CHECK(visits.batches == 2);
    CHECK(visits.windows.size() == 16);
    CHECK(visits.windows.rbegin()->first == 15);
    CHECK(visit(set, ids, 4, 2, 99).windows.size() == 20);
}

TEST_CASE("evaluation batches: the memory of the caller is used") {
    const TempFolder folder;
    write_token_shard(folder / "v.bin", shard_facts(1000), counting_ids(2 * kT + 1));
    const TokenSet set({.files = folder / "v.bin", .role = "val"});
    std::vector<std::int32_t> memory(2 * 3 * kT);
    EvaluationConfig config{.seq_len = kT, .micro_batch = 3, .memory = {}};
    config.memory = make_tensor(memory.data(), DType::i32, {2 * 3 * kT}, Device::cpu);
    EvaluationBatches batches(set, config);
    CHECK(batches.num_windows() == 2);
    CHECK(batches.read(0).inputs.data == memory.data());
    config.memory = make_tensor(memory.data(), DType::i32, {2 * 3 * kT - 1}, Device::cpu);
    CHECK(contains(error_of([&] { EvaluationBatches(set, config); }),
                   "memory is (47) i32 on cpu, needed are 48"));
}

TEST_CASE("evaluation batches: a set without a window and bad numbers are refused") {
    const TokenSet set({.files = case_file("B25_shard_short/tokens_8.bin"), .role = "val"});
    const auto error_with = [&](const EvaluationConfig& config) {
        return error_of([&] { EvaluationBatches(set, config); });
    };
    const std::string error = error_with({.seq_len = 8, .memory = {}});
    CHECK(contains(error, "data.too_short: data.val: "));
    CHECK(contains(error, "tokens_8.bin (8 tokens)"));
    CHECK(contains(error, "9 tokens are needed"));
    CHECK(contains(error_with({.seq_len = 0, .memory = {}}), "seq_len = 0"));
    CHECK(contains(error_with({.seq_len = 2, .rank = 2, .world_size = 2, .memory = {}}),
                   "rank = 2, allowed 0..1"));
    CHECK(
        contains(error_with({.seq_len = 2, .max_batches = -1, .memory = {}}), "max_batches = -1"));
    EvaluationBatches batches(set, {.seq_len = 2, .memory = {}});
    CHECK(contains(error_of([&] { batches.read(3); }), "batch 3 was asked for, there are 3"));
}
