#include "data/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "engine/core/check.h"

namespace ingot {
namespace {

struct OpenFile {
    int fd = -1;

    ~OpenFile() {
        if (fd >= 0) close(fd);
    }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
    OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    ENSURE(file.fd >= 0 || errno != EMFILE, "shard.open", path,
           ": the process has reached its limit of open files, and each shard needs one; raise the "
           "limit (ulimit -n) above the number of shards, or make larger shards");
    ENSURE(file.fd >= 0, "shard.open", path, ": cannot open: ", std::strerror(errno));
    struct stat status {};
    ENSURE(fstat(file.fd, &status) == 0, "shard.open", path, ": ", std::strerror(errno));
    ENSURE(S_ISREG(status.st_mode), "shard.open", path, " is not a regular file");
    size_bytes_ = status.st_size;
    id_ = {static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino)};
    if (size_bytes_ > 0) {
        void* data =
            mmap(nullptr, static_cast<std::size_t>(size_bytes_), PROT_READ, MAP_SHARED, file.fd, 0);
        ENSURE(data != MAP_FAILED, "shard.open", path, ": cannot map ", size_bytes_,
               " bytes: ", std::strerror(errno));
        data_ = static_cast<const unsigned char*>(data);
    }
    install_bus_error_guard();
    fd_ = std::exchange(file.fd, -1);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        munmap(const_cast<unsigned char*>(data_), static_cast<std::size_t>(size_bytes_));
    }
    if (fd_ >= 0) close(fd_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      id_(other.id_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(id_, other.id_);
    return *this;
}

void MappedFile::copy(std::int64_t offset_bytes, std::int64_t size_bytes, void* out) const {
    read(offset_bytes, size_bytes, [=](const unsigned char* at) {
        std::memcpy(out, at, static_cast<std::size_t>(size_bytes));
    });
}

void MappedFile::check_intact(bool read_ok, std::int64_t offset_bytes) const {
    struct stat status {};
    ENSURE(fstat(fd_, &status) == 0, "shard.io", path_, ": ", std::strerror(errno));
    ENSURE(status.st_size >= size_bytes_, "shard.truncated", path_, " has ",
           static_cast<std::int64_t>(status.st_size), " bytes now and had ", size_bytes_,
           " when it was opened; it was truncated or overwritten while in use: restore it and "
           "start again");
    ENSURE(read_ok, "shard.io", path_, ": the storage failed to deliver the bytes behind offset ",
           offset_bytes, " of ", size_bytes_, "; see the kernel log of this host");
}

}  // namespace ingot
