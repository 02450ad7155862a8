// A file mapped for reading. Thread safe. Truncation while it is mapped, or a storage error, is an
// error that names the file, never a signal and never silent zeros.
// Errors: shard.open, shard.size, shard.truncated, shard.io.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "data/guarded_memory.h"

namespace ingot {

// Equal for two paths that lead to the same file.
struct FileId {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;

    bool operator==(const FileId&) const = default;
};

class MappedFile {
  public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    const std::string& path() const { return path_; }
    std::int64_t size_bytes() const { return size_bytes_; }  // when it was opened
    FileId id() const { return id_; }

    // Calls read(const unsigned char* at), which may load size_bytes from `at`. `read` obeys the
    // rules of read_guarded.
    template <class Read>
    void read(std::int64_t offset_bytes, std::int64_t size_bytes, Read&& read) const {
        struct Call {
            std::remove_reference_t<Read>* read;
            const unsigned char* at;
        } call{&read, data_ + offset_bytes};
        const bool ok = read_guarded(
            call.at, static_cast<std::size_t>(size_bytes),
            [](void* argument) {
                const Call* c = static_cast<Call*>(argument);
                (*c->read)(c->at);
            },
            &call);
        check_intact(ok, offset_bytes);
    }
    // Copies size_bytes to out.
    void copy(std::int64_t offset_bytes, std::int64_t size_bytes, void* out) const;

  private:
    // Throws when the file is shorter than when it was opened: the bytes read behind its end, in
    // its last page, were zeros.
    void check_intact(bool read_ok, std::int64_t offset_bytes) const;

    std::string path_;
    int fd_ = -1;
    const unsigned char* data_ = nullptr;
    std::int64_t size_bytes_ = 0;
    FileId id_;
};

}  // namespace ingot
