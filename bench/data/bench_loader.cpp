// What the loader costs: opening a set (the scan for ids beyond the vocabulary), one guarded read
// against a plain copy, batches as fast as they come, and the share of a step that waits for data
// when steps take as long as a given training rate makes them.
//
//   bench_loader [--tokens N | --files GLOB] [--seq-len T] [--micro-batch B] [--rate TOKENS/S] ...
//
// The set is written to a temporary folder, as four shards of random 16-bit ids, or given. "cold"
// drops it from the page cache first. A step of the paced part is simulated by sleeping, as a host
// does while its GPU computes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <thread>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "data/loader.h"
#include "data/shard_writer.h"
#include "engine/core/check.h"
#include "engine/core/rng.h"

namespace {

using namespace ingot;
using Clock = std::chrono::steady_clock;

struct Options {
    std::string files;
    std::int64_t tokens = 100'000'000;
    std::int64_t seq_len = 1024;
    std::int64_t micro_batch = 64;
    double rate = 700'000.0;  // tokens/s of the simulated training
    int steps = 50;
    int workers = 2;
    int prefetch = 4;
};

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string write_shards(const std::string& folder, std::int64_t tokens) {
    constexpr int kShards = 4;
    ShardHeader header;
    header.vocab_size = 50257;
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens / kShards));
    for (int shard = 0; shard < kShards; ++shard) {
        for (std::size_t i = 0; i < ids.size(); i += 4) {
            const PhiloxBlock draw = philox(1, static_cast<std::uint64_t>(shard), i);
            for (std::size_t k = 0; k < 4 && i + k < ids.size(); ++k)
                ids[i + k] = draw.word[k] % 50257;
        }
        header.shard_index = shard;
        write_token_shard(str(folder, "/train_", shard, ".bin"), header, ids);
    }
    return folder + "/train_*.bin";
}

void drop_from_page_cache(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY);
    ENSURE(fd >= 0 && fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0,
           "bench.cache", path, ": cannot drop it from the page cache");
    close(fd);
}

void bench_open(const std::string& files) {
    std::vector<std::string> paths;
    double set_bytes = 0.0;
    {
        const TokenSet set({.files = files});
        for (const TokenShard& shard : set.shards()) {
            paths.push_back(shard.path());
            set_bytes += static_cast<double>(shard.num_tokens() * shard.header().token_bytes);
        }
        std::cout << "set: " << set.description() << '\n';
    }
    for (const char* cache : {"cold", "warm"}) {
        for (const int threads : {1, 2, 8}) {
            if (cache[0] == 'c') std::for_each(paths.begin(), paths.end(), drop_from_page_cache);
            const Clock::time_point begin = Clock::now();
            const TokenSet set({.files = files, .scan_threads = threads});
            const double seconds = seconds_since(begin);
            std::printf("open and scan, %s, %d threads: %8.1f ms, %6.2f GB/s, %7.0f M tokens/s\n",
                        cache, threads, seconds * 1e3, set_bytes / seconds * 1e-9,
                        static_cast<double>(set.num_tokens()) / seconds * 1e-6);
        }
    }
}

// One window, guarded and checked, against the same widening copy from ordinary memory.
void bench_read(const TokenSet& set, std::int64_t T) {
    constexpr int kReads = 200'000;
    std::vector<std::int32_t> out(static_cast<std::size_t>(T + 1));
    std::vector<std::uint16_t> plain(1 << 20, 7);
    const std::int64_t windows = std::min<std::int64_t>(set.num_windows(T), (1 << 20) / T - 1);
    const auto measure = [&](const char* what, auto&& read) {
        const Clock::time_point begin = Clock::now();
        for (std::int64_t i = 0; i < kReads; ++i)
            read(i % windows * T);
        std::printf("%-44s %8.0f ns\n", what, seconds_since(begin) / kReads * 1e9);
    };
    measure("one window, plain copy to int32", [&](std::int64_t begin) {
        std::copy_n(plain.data() + begin, T + 1, out.data());
        asm volatile("" : : "r"(out.data()) : "memory");
    });
    measure("one window, TokenShard::read (guard, fstat)",
            [&](std::int64_t begin) { set.shards()[0].read(begin, T + 1, out.data()); });
    measure("one window, TokenSet::read (and id check)",
            [&](std::int64_t begin) { set.read(begin, T + 1, out.data()); });
}

LoaderConfig loader_config(const Options& options) {
    LoaderConfig config;
    config.seq_len = options.seq_len;
    config.micro_batch = options.micro_batch;
    config.global_batch = options.micro_batch;
    config.workers = options.workers;
    config.prefetch = options.prefetch;
    return config;
}

void bench_throughput(const TokenSet& set, const Options& options) {
    for (const int workers : {0, 1, 2, 4}) {
        LoaderConfig config = loader_config(options);
        config.workers = workers;
        Loader loader(set, config);
        for (int i = 0; i < 2; ++i)
            loader.next();
        std::int64_t batches = 0;
        const Clock::time_point begin = Clock::now();
        for (; batches < 20 || seconds_since(begin) < 0.5; ++batches)
            loader.next();
        const auto tokens = static_cast<double>(batches * options.micro_batch * options.seq_len);
        std::printf("flat out, %d workers: %7.1f M tokens/s\n", workers,
                    tokens / seconds_since(begin) * 1e-6);
    }
}

void bench_paced(const TokenSet& set, const Options& options) {
    Loader loader(set, loader_config(options));
    const double step_seconds =
        static_cast<double>(options.micro_batch * options.seq_len) / options.rate;
    loader.next();
    double wait_ms = 0.0;
    double longest_ms = 0.0;
    const Clock::time_point begin = Clock::now();
    for (int step = 0; step < options.steps; ++step) {
        const Batch batch = loader.next();
        wait_ms += batch.wait_ms;
        longest_ms = std::max(longest_ms, batch.wait_ms);
        std::this_thread::sleep_until(
            begin + std::chrono::duration_cast<Clock::duration>(
                        std::chrono::duration<double>(step_seconds * (step + 1))));
    }
    const double run_ms = seconds_since(begin) * 1e3;
    std::printf(
        "paced at %.0f tokens/s (%.1f ms a step), %d workers: waited %.4f ms a step, longest "
        "%.3f ms, %.4f %% of the time\n",
        options.rate, step_seconds * 1e3, options.workers, wait_ms / options.steps, longest_ms,
        100.0 * wait_ms / run_ms);
}

void run(const Options& options) {
    std::string folder;
    std::string files = options.files;
    if (files.empty()) {
        folder = (std::filesystem::temp_directory_path() / "bench_loader_XXXXXX").string();
        ENSURE(mkdtemp(folder.data()) != nullptr, "bench.folder", "cannot make ", folder);
        files = write_shards(folder, options.tokens);
    }
    bench_open(files);
    {
        const TokenSet set({.files = files});
        bench_read(set, options.seq_len);
        bench_throughput(set, options);
        bench_paced(set, options);
    }
    if (!folder.empty()) std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Measures the data loader.");
    Options options;
    app.add_option("--files", options.files, "glob of token shards; default: made here");
    app.add_option("--tokens", options.tokens, "tokens to make")->capture_default_str();
    app.add_option("--seq-len", options.seq_len)->capture_default_str();
    app.add_option("--micro-batch", options.micro_batch)->capture_default_str();
    app.add_option("--rate", options.rate, "tokens/s of the simulated steps")
        ->capture_default_str();
    app.add_option("--steps", options.steps)->capture_default_str();
    app.add_option("--workers", options.workers)->capture_default_str();
    app.add_option("--prefetch", options.prefetch)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        run(options);
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
