#include "engine/core/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "engine/core/check.h"

namespace ingot {
namespace {

std::string reason(int error) {
    return std::strerror(error);
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

FileHandle open_file(const std::string& path, int flags) {
    int descriptor;
    do {
        descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    } while (descriptor < 0 && errno == EINTR);
    const int error = errno;
    ENSURE(descriptor >= 0, "file.open", "cannot open ", path, ": ", reason(error));
    return FileHandle(descriptor);
}

[[noreturn]] void fail_write(const std::string& path, std::int64_t left_bytes, int error) {
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
        fail("file.full", "cannot write ", path, ": ", reason(error), "; ", left_bytes,
             " bytes were still to be written and ", free_disk_bytes(path),
             " are free there; free some space or choose another folder");
    }
    fail("file.write", "cannot write ", path, ": ", reason(error), "; ", left_bytes,
         " bytes were still to be written");
}

// Linux takes at most 0x7ffff000 bytes in one call.
constexpr std::int64_t kCallLimitBytes = std::int64_t{1} << 30;

void sync_folder(const std::string& path) {
    const std::string folder = folder_of(path);
    const FileHandle handle = open_file(folder, O_RDONLY | O_DIRECTORY);
    // Some network file systems refuse to sync a folder; the rename is visible all the same.
    const int result = ::fsync(handle.get());
    const int error = errno;
    ENSURE(result == 0 || error == EINVAL || error == ENOTSUP, "file.write", "cannot sync folder ",
           folder, ": ", reason(error));
}

void sync_file(const FileHandle& handle, const std::string& path) {
    const int result = ::fsync(handle.get());
    const int error = errno;
    // Pipes and character devices have nothing to sync.
    if (result != 0 && error != EINVAL && error != EROFS) fail_write(path, 0, error);
}

}  // namespace

FileHandle::FileHandle(FileHandle&& other) noexcept : descriptor_(other.release()) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

FileHandle::~FileHandle() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

int FileHandle::release() {
    return std::exchange(descriptor_, -1);
}

FileReader::FileReader(const std::string& path) : path_(path), handle_(open_file(path, O_RDONLY)) {
    struct stat info {};
    const int result = ::fstat(handle_.get(), &info);
    const int error = errno;
    ENSURE(result == 0, "file.read", "cannot look at ", path, ": ", reason(error));
    ENSURE(S_ISREG(info.st_mode), "file.read", path, " is ",
           S_ISDIR(info.st_mode) ? "a folder" : "not a regular file", "; a file is needed");
    size_bytes_ = info.st_size;
}

void FileReader::read(std::int64_t offset_bytes, void* out, std::int64_t count_bytes) const {
    auto* bytes = static_cast<char*>(out);
    std::int64_t done = 0;
    while (done < count_bytes) {
        const std::int64_t want = std::min(count_bytes - done, kCallLimitBytes);
        const ssize_t got = ::pread(handle_.get(), bytes + done, static_cast<std::size_t>(want),
                                    offset_bytes + done);
        const int error = errno;
        if (got < 0 && error == EINTR) continue;
        ENSURE(got >= 0, "file.read", "cannot read ", path_, " at byte ", offset_bytes + done, ": ",
               reason(error));
        ENSURE(got > 0, "file.short", path_, " ends at byte ", offset_bytes + done, ", but ",
               count_bytes - done, " more were to be read; it had ", size_bytes_,
               " bytes when it was opened");
        done += got;
    }
}

AppendFile::AppendFile(const std::string& path, Open mode)
    : path_(path),
      handle_(open_file(path,
                        O_WRONLY | O_APPEND | O_CREAT | (mode == Open::create_new ? O_EXCL : 0))) {}

void AppendFile::append(const void* data, std::int64_t count_bytes) {
    const auto* bytes = static_cast<const char*>(data);
    std::int64_t done = 0;
    while (done < count_bytes) {
        const std::int64_t want = std::min(count_bytes - done, kCallLimitBytes);
        const ssize_t put = ::write(handle_.get(), bytes + done, static_cast<std::size_t>(want));
        const int error = errno;
        if (put < 0 && error == EINTR) continue;
        if (put < 0) fail_write(path_, count_bytes - done, error);
        done += put;
    }
}

void AppendFile::append(const std::string& text) {
    append(text.data(), static_cast<std::int64_t>(text.size()));
}

void AppendFile::sync() {
    sync_file(handle_, path_);
}

AtomicFile::AtomicFile(const std::string& path)
    : path_(path),
      partial_path_(path + ".partial"),
      handle_(open_file(partial_path_, O_WRONLY | O_CREAT | O_TRUNC)) {}

AtomicFile::~AtomicFile() {
    if (handle_.is_open()) ::unlink(partial_path_.c_str());
}

void AtomicFile::write(std::int64_t offset_bytes, const void* data, std::int64_t count_bytes) {
    ENSURE(handle_.is_open(), "file.write", path_, " was written to after commit()");
    const auto* bytes = static_cast<const char*>(data);
    std::int64_t done = 0;
    while (done < count_bytes) {
        const std::int64_t want = std::min(count_bytes - done, kCallLimitBytes);
        const ssize_t put = ::pwrite(handle_.get(), bytes + done, static_cast<std::size_t>(want),
                                     offset_bytes + done);
        const int error = errno;
        if (put < 0 && error == EINTR) continue;
        if (put < 0) fail_write(path_, count_bytes - done, error);
        done += put;
    }
}

void AtomicFile::commit() {
    ENSURE(handle_.is_open(), "file.write", path_, " was committed twice");
    sync_file(handle_, path_);
    // Network file systems and quotas report a full disk at close.
    const int closed = ::close(handle_.release());
    const int close_error = errno;
    if (closed != 0 && close_error != EINTR) {
        ::unlink(partial_path_.c_str());
        fail_write(path_, 0, close_error);
    }
    const int renamed = ::rename(partial_path_.c_str(), path_.c_str());
    const int error = errno;
    if (renamed != 0) ::unlink(partial_path_.c_str());
    ENSURE(renamed == 0, "file.rename", "cannot rename ", partial_path_, " to ", path_, ": ",
           reason(error));
    sync_folder(path_);
}

std::string read_text_file(const std::string& path, std::int64_t limit_bytes) {
    const FileReader file(path);
    ENSURE(file.size_bytes() <= limit_bytes, "file.read", path, " has ", file.size_bytes(),
           " bytes, more than the ", limit_bytes, " that such a file may have");
    std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
    file.read(0, text.data(), file.size_bytes());
    return text;
}

void write_text_file(const std::string& path, const std::string& text) {
    AtomicFile file(path);
    file.write(0, text.data(), static_cast<std::int64_t>(text.size()));
    file.commit();
}

void make_folders(const std::string& path) {
    for (std::size_t end = 0; end != std::string::npos;) {
        end = path.find('/', end + 1);
        const std::string part = path.substr(0, end);
        if (part.empty() || part == "/" || ::mkdir(part.c_str(), 0755) == 0) continue;
        const int error = errno;
        struct stat info {};
        // A part that is there already may also answer EACCES or EROFS.
        const bool there = ::stat(part.c_str(), &info) == 0;
        ENSURE(!there || S_ISDIR(info.st_mode), "file.folder", "cannot make folder ", path, ": ",
               part, " is a file");
        ENSURE(there, "file.folder", "cannot make folder ", path, ": ", part, ": ", reason(error));
    }
}

bool file_exists(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0;
}

std::int64_t free_disk_bytes(const std::string& path) {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0 && ::statvfs(folder_of(path).c_str(), &info) != 0) {
        return -1;
    }
    return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

}  // namespace ingot
