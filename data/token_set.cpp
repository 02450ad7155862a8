#include "data/token_set.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <glob.h>
#include <limits>
#include <mutex>
#include <thread>

#include "engine/core/check.h"

namespace ingot {
namespace {

constexpr std::int64_t kScanBlockTokens = std::int64_t{1} << 22;
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

std::vector<std::string> matches_of(const TokenSetConfig& config) {
    ENSURE(!config.files.empty(), "data.glob", "data.", config.role,
           " is empty; give a glob of token shards, e.g. data/", config.role, "_*.bin");
    glob_t found{};
    // Sorted here, by bytes: glob() sorts by the locale.
    const int result =
        ::glob(config.files.c_str(), GLOB_ERR | GLOB_NOSORT | GLOB_TILDE, nullptr, &found);
    const int error = errno;
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    ENSURE(result == 0 || result == GLOB_NOMATCH, "data.glob", "data.", config.role, " = ",
           config.files, ": cannot list the files: ", std::strerror(error));
    ENSURE(!paths.empty(), "data.glob", "data.", config.role, " = ", config.files,
           " matches no file; make shards with tools/prepare_data.py, or correct the path");
    std::sort(paths.begin(), paths.end());
    return paths;
}

int thread_count(const TokenSetConfig& config) {
    if (config.scan_threads > 0) return config.scan_threads;
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
}

std::string tokenizer_name(const ShardHeader& header) {
    return header.knows_tokenizer() ? hex_string(header.tokenizer_sha256).substr(0, 16)
                                    : std::string("unknown");
}

// Throws when two shards cannot be of one tokenizer.
void check_same_tokenizer(const std::string& key, const TokenShard& a, const TokenShard& b) {
    const ShardHeader& x = a.header();
    const ShardHeader& y = b.header();
    ENSURE(x.tokenizer_sha256 == y.tokenizer_sha256, "data.tokenizer", key, ": ", b.path(),
           " was made with tokenizer ", tokenizer_name(y), ", ", a.path(), " with ",
           tokenizer_name(x), " (SHA-256); a run needs shards of one tokenizer");
    ENSURE(x.vocab_size == y.vocab_size && x.eos_id == y.eos_id, "data.tokenizer", key, ": ",
           b.path(), " has vocabulary ", y.vocab_size, " and end of document ", y.eos_id, ", ",
           a.path(), " has ", x.vocab_size, " and ", x.eos_id,
           "; a run needs shards of one tokenizer");
}

}  // namespace

TokenSet::TokenSet(const TokenSetConfig& config) : config_(config) {
    ENSURE(config.scan_parts >= 1 && config.scan_part >= 0 && config.scan_part < config.scan_parts,
           "data.scan", "data.", config.role, ": scan part ", config.scan_part, " of ",
           config.scan_parts);
    open_shards();
    check_agreement();
    scan();
}

void TokenSet::open_shards() {
    first_token_.push_back(0);
    for (const std::string& path : matches_of(config_)) {
        shards_.emplace_back(path);
        first_token_.push_back(first_token_.back() + shards_.back().num_tokens());
    }
}

void TokenSet::check_agreement() const {
    for (const TokenShard& shard : shards_)
        check_same_tokenizer("data." + config_.role, shards_[0], shard);
    ENSURE(config_.vocab_size == 0 || vocab_size() <= config_.vocab_size, "data.vocab", "data.",
           config_.role, ": the tokenizer of ", shards_[0].path(), " has ids up to ",
           vocab_size() - 1, ", model.vocab_size = ", config_.vocab_size, "; it must be at least ",
           vocab_size(), ", or the data be prepared with the model's tokenizer");
}

std::int64_t TokenSet::num_windows(std::int64_t seq_len) const {
    ENSURE(seq_len >= 1, "data.seq_len", "data.", config_.role, ": a window of ", seq_len,
           " tokens was asked for, at least 1 is needed");
    return num_tokens() < 1 ? 0 : (num_tokens() - 1) / seq_len;
}

std::size_t TokenSet::shard_of(std::int64_t token) const {
    const auto behind = std::upper_bound(first_token_.begin(), first_token_.end(), token);
    return static_cast<std::size_t>(behind - first_token_.begin()) - 1;
}

// Calls visit(shard, begin, count) for the parts of [begin, begin + count), in order.
template <class Visit>
void TokenSet::for_each_piece(std::int64_t begin, std::int64_t count, Visit&& visit) const {
    const std::int64_t end = begin + count;
    for (std::size_t i = shard_of(begin); begin < end; ++i) {
        const std::int64_t piece = std::min(end, first_token_[i + 1]) - begin;
        if (piece <= 0) continue;  // a shard without tokens
        visit(shards_[i], begin - first_token_[i], piece);
        begin += piece;
    }
}

// Blocks are taken in order, so all blocks in front of the first bad one are finished too, and the
// error names the first bad token whatever the number of threads.
void TokenSet::scan() {
    const std::int64_t known = vocab_size() > 0 ? vocab_size() : std::int64_t{1} << 31;
    id_limit_ = config_.vocab_size > 0 ? std::min(known, config_.vocab_size) : known;

    const std::int64_t first =
        num_tokens() / config_.scan_parts * config_.scan_part +
        num_tokens() % config_.scan_parts * config_.scan_part / config_.scan_parts;
    const std::int64_t next_part = config_.scan_part + 1;
    const std::int64_t last = num_tokens() / config_.scan_parts * next_part +
                              num_tokens() % config_.scan_parts * next_part / config_.scan_parts;
    std::atomic<std::int64_t> next_block{first};
    std::mutex mutex;  // of what follows
    std::int64_t stopped_at = kNone;
    std::exception_ptr error;
    const auto work = [&] {
        for (;;) {
            const std::int64_t begin = next_block.fetch_add(kScanBlockTokens);
            if (begin >= last) return;
            const std::int64_t count = std::min(kScanBlockTokens, last - begin);
            std::int64_t highest = -1;
            std::exception_ptr failure;
            try {
                for_each_piece(begin, count, [&](const TokenShard& shard, auto at, auto n) {
                    highest = std::max(highest, shard.max_id(at, n));
                });
                if (highest >= id_limit_) refuse_id(begin, count);
            } catch (...) {
                failure = std::current_exception();
            }
            const std::lock_guard<std::mutex> lock(mutex);
            max_id_ = std::max(max_id_, highest);
            if (failure && begin < stopped_at) {
                stopped_at = begin;
                error = failure;
            }
            if (stopped_at != kNone) return;
        }
    };
    {
        const std::int64_t blocks = (last - first + kScanBlockTokens - 1) / kScanBlockTokens;
        const auto helpers = std::min<std::int64_t>(thread_count(config_), blocks) - 1;
        std::vector<std::jthread> threads;
        for (std::int64_t i = 0; i < helpers; ++i)
            threads.emplace_back(work);
        work();
    }
    if (error) std::rethrow_exception(error);
}

void TokenSet::refuse_id(std::int64_t begin, std::int64_t count) const {
    std::vector<std::int32_t> ids(kScanBlockTokens);
    for_each_piece(begin, count, [&](const TokenShard& shard, std::int64_t at, std::int64_t n) {
        for (std::int64_t done = 0; done < n; done += kScanBlockTokens) {
            const std::int64_t size = std::min(kScanBlockTokens, n - done);
            shard.read(at + done, size, ids.data());
            for (std::int64_t i = 0; i < size; ++i) {
                const auto id = static_cast<std::uint32_t>(ids[i]);
                ENSURE(id < id_limit_, "data.token_id", "data.", config_.role, ": ", shard.path(),
                       ": token ", at + done + i, " is id ", id, ", the vocabulary has ", id_limit_,
                       " ids (0..", id_limit_ - 1,
                       "); the shard is damaged, or of another tokenizer than the model");
            }
        }
    });
    fail("data.token_id", "data.", config_.role, " = ", config_.files, ": tokens [", begin, ", ",
         begin + count, ") changed while they were read");
}

void TokenSet::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
    ENSURE(begin >= 0 && count >= 0 && begin <= num_tokens() - count, "data.range", "data.",
           config_.role, ": tokens [", begin, ", ", begin, " + ", count,
           ") were asked for, there are ", num_tokens());
    std::int32_t* to = out;
    for_each_piece(begin, count, [&](const TokenShard& shard, std::int64_t at, std::int64_t n) {
        shard.read(at, n, to);
        to += n;
    });
    std::uint32_t highest = 0;
    for (std::int64_t i = 0; i < count; ++i)
        highest = std::max(highest, static_cast<std::uint32_t>(out[i]));
    if (count > 0 && highest >= id_limit_) refuse_id(begin, count);
}

std::string TokenSet::description() const {
    if (shards_.size() == 1) return str(shards_[0].path(), " (", num_tokens(), " tokens)");
    return str(config_.files, " (", shards_.size(), " shards, ", num_tokens(), " tokens)");
}

void check_separate(const TokenSet& train, const TokenSet& held_out) {
    const std::string key = "data." + held_out.config().role;
    check_same_tokenizer(key, train.shards()[0], held_out.shards()[0]);
    for (const TokenShard& a : train.shards()) {
        for (const TokenShard& b : held_out.shards()) {
            if (a.num_tokens() == 0) continue;
            ENSURE(!(a.file_id() == b.file_id()), "data.overlap", key, ": ", b.path(),
                   " is the same file as ", a.path(), " of data.", train.config().role,
                   "; the loss on data that is trained on means nothing");
            ENSURE(!same_tokens(a, b), "data.overlap", key, ": ", b.path(), " holds the same ",
                   b.num_tokens(), " tokens as ", a.path(), " of data.", train.config().role,
                   "; the loss on data that is trained on means nothing");
        }
    }
}

void check_tokenizer(const TokenSet& set,
                     const Sha256Digest& model_tokenizer,
                     const std::string& model_path) {
    const TokenShard& shard = set.shards()[0];
    if (!shard.header().knows_tokenizer()) return;
    ENSURE(shard.header().tokenizer_sha256 == model_tokenizer, "data.tokenizer", "data.",
           set.config().role, ": ", shard.path(), " was made with tokenizer ",
           tokenizer_name(shard.header()), ", the model's ", model_path, " is ",
           hex_string(model_tokenizer).substr(0, 16),
           " (SHA-256); prepare the data with the model's tokenizer");
}

}  // namespace ingot
