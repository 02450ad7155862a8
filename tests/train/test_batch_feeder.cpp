// Goal: batches reach the device whole and in order without a wait of the host, because the loader
// holds as many as the lag of a run needs, and memory that is still being copied is never reused.
// Method: the trainer's order of work on immediate, adversarial and CUDA streams, against a loader
// of its own; counted waits; one batch fewer; one case for each error.
#include <doctest/doctest.h>

#include "engine/core/host_waits.h"
#include "engine/train/batch_feeder.h"
#include "engine/train/optimizer.h"
#include "tests/support/device_matrix.h"
#include "tests/support/run_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

constexpr std::int64_t kB = 2, kT = 5, kMicroSteps = 3, kSteps = 12;

LoaderConfig loader_config() {
    LoaderConfig config;
    config.seq_len = kT;
    config.micro_batch = kB;
    config.global_batch = kB * kMicroSteps;
    return config;
}

// A loader of pinned memory, its feeder, and a place for the inputs and the order of every batch.
struct Feeding {
    Feeding(Context& c, const TokenSet& set, LoaderConfig config)
        : context(c),
          pinned(c, loader_memory_numel(config) * 4, "loader batches", Buffer::Kind::pinned),
          loader(set, with_memory(config)),
          feeder(c, loader, kB, kT),
          seen_memory(c, kSteps * kMicroSteps * kFields * 4, "batches seen") {
        for (std::int64_t i = 0; i < kSteps; ++i)
            done.emplace_back(c);
    }

    LoaderConfig with_memory(LoaderConfig config) const {
        config.memory = pinned.tensor(DType::i32, {loader_memory_numel(config)});
        return config;
    }

    Tensor seen() const { return seen_memory.tensor(DType::i32, {kSteps * kMicroSteps, kFields}); }

    // Enqueues a step as the trainer does; the work on a batch is a copy of it.
    void enqueue_step(std::int64_t step) {
        const Stream stream = context.compute_stream();
        for (std::int64_t m = 0; m < kMicroSteps; ++m) {
            const DeviceBatch batch = feeder.next(stream);
            const std::int64_t n = step * kMicroSteps + m;
            const Tensor place = seen().slice(n, n + 1).view({kFields});
            copy(stream, place.slice(0, kB * kT), batch.inputs.view({kB * kT}));
            copy(stream, place.slice(kB * kT, 2 * kB * kT), batch.targets.view({kB * kT}));
            copy(stream, place.slice(2 * kB * kT, kFields), batch.order.view({2 * kB * kT}));
            feeder.release(stream, batch);
        }
        stream.record(done[static_cast<std::size_t>(step)]);
    }

    // All steps, each read `lag` steps late.
    void run(std::int64_t lag) {
        for (std::int64_t step = 0; step < kSteps; ++step) {
            enqueue_step(step);
            if (step >= lag) done[static_cast<std::size_t>(step - lag)].synchronize();
        }
    }

    std::vector<std::int32_t> read_seen() const {
        context.synchronize();
        std::vector<std::int32_t> ids(static_cast<std::size_t>(seen().numel()));
        copy(context.compute_stream(),
             make_tensor(ids.data(), DType::i32, {seen().numel()}, Device::cpu),
             seen().view({seen().numel()}));
        context.synchronize();
        return ids;
    }

    static constexpr std::int64_t kFields = kBatchFields * kB * kT;
    Context& context;
    Buffer pinned;
    Loader loader;
    BatchFeeder feeder;
    Buffer seen_memory;
    std::deque<Event> done;  // one a step
};

// What the device must have seen: the batches of a loader that nothing is taken back from.
std::vector<std::int32_t> expected_batches(const TokenSet& set) {
    Loader loader(set, loader_config());
    std::vector<std::int32_t> ids;
    for (std::int64_t n = 0; n < kSteps * kMicroSteps; ++n) {
        const Batch batch = loader.next();
        for (const ConstTensor& part : {batch.inputs, batch.targets, batch.order}) {
            const std::int32_t* at = part.ptr<std::int32_t>();
            ids.insert(ids.end(), at, at + part.numel());
        }
    }
    return ids;
}

struct Data {
    RunScratch scratch{"batch_feeder"};
    TokenSet set{{.files = scratch.path("train_000.bin")}};
};

// "code: message" of the Error that f throws; "no error" when it throws none.
template <class F>
std::string error_of(F&& f) {
    try {
        f();
    } catch (const Error& error) {
        return str(error.code(), ": ", error.what());
    }
    return "no error";
}

}  // namespace

TEST_CASE(
    "batch feeder: every batch arrives as it was loaded, and the host waits for results alone") {
    const Data data;
    const TokenSet& set = data.set;
    const std::vector<std::int32_t> expected = expected_batches(set);
    for (const Device device : test_devices()) {
        for (const std::int64_t lag : {0, 1}) {
            CAPTURE(name_of(device));
            CAPTURE(lag);
            const auto context = make_context(device);
            Feeding feeding(*context, set, hold_batches(loader_config(), lag));
            feeding.run(lag);
            CHECK(context->object<HostWaits>().for_events == kSteps - lag);
            CHECK(context->object<HostWaits>().for_streams == 0);
            CHECK(feeding.read_seen() == expected);
        }
    }
}

TEST_CASE(
    "batch feeder: the batches held are enough in every order of the streams, one fewer is not") {
    const Data data;
    const TokenSet& set = data.set;
    const std::vector<std::int32_t> expected = expected_batches(set);
    for (const std::int64_t lag : {0, 1, 2}) {
        CAPTURE(lag);
        int num_refused = 0;
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            CAPTURE(seed);
            const CpuContextOptions options{.mode = CpuMode::adversarial, .seed = seed};
            const auto context = Context::make_cpu(options);
            LoaderConfig config = hold_batches(loader_config(), lag);
            Feeding feeding(*context, set, config);
            CHECK_NOTHROW(feeding.run(lag));
            CHECK(feeding.read_seen() == expected);

            --config.held;
            const auto other = Context::make_cpu(options);
            Feeding fewer(*other, set, config);
            const std::string error = error_of([&] { fewer.run(lag); });
            if (error.find("feeder.pending_copy: batch ") == 0) ++num_refused;
            other->synchronize();  // before the memory goes
        }
        CHECK(num_refused > 0);
    }
}

TEST_CASE("batch feeder: memory that is still being copied is refused to the loader, by number") {
    const Data data;
    const TokenSet& set = data.set;
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = 1});
    LoaderConfig config = loader_config();
    config.held = 4;
    Feeding feeding(*context, set, config);
    const Stream stream = context->compute_stream();
    for (int i = 0; i < 4; ++i)
        feeding.feeder.release(stream, feeding.feeder.next(stream));
    const std::string error = error_of([&] { feeding.feeder.next(stream); });
    CHECK(error.find("feeder.pending_copy: batch 4: the loader holds 4 batches and would reuse the "
                     "memory of batch 0, which is still being copied") == 0);
    context->synchronize();
    const DeviceBatch batch = feeding.feeder.next(stream);  // nothing was taken by the refusal
    CHECK(batch.host.step == 1);
    CHECK(batch.host.micro_step == 1);
    context->synchronize();
}

TEST_CASE(
    "batch feeder: a run holds the batches of lag + 1 steps and prepares those of lag steps") {
    LoaderConfig config = loader_config();
    const auto numbers = [&](std::int64_t lag) {
        const LoaderConfig held = hold_batches(config, lag);
        return std::vector<std::int64_t>{held.held, held.prefetch};
    };
    CHECK(numbers(0) == std::vector<std::int64_t>{3, 4});
    CHECK(numbers(1) == std::vector<std::int64_t>{6, 4});
    CHECK(numbers(2) == std::vector<std::int64_t>{9, 6});
    config.world_size = 3;
    CHECK(numbers(1) == std::vector<std::int64_t>{2, 4});
    CHECK(result_lag(Device::cpu) == 0);
    CHECK(result_lag(Device::cuda) == 1);
}
