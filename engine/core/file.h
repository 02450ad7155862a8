// Checked file access. Every failure names the file, what was tried and the system's reason; a full
// disk also says how much was to be written and how much is free.
// Errors: file.open, file.read, file.write, file.full, file.short, file.rename, file.folder.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

// Owns a file descriptor.
class FileHandle {
  public:
    FileHandle() = default;
    explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
    FileHandle(FileHandle&& other) noexcept;
    FileHandle& operator=(FileHandle&& other) noexcept;
    FileHandle(const FileHandle&) = delete;
    FileHandle& operator=(const FileHandle&) = delete;
    ~FileHandle();

    int get() const { return descriptor_; }
    bool is_open() const { return descriptor_ >= 0; }
    int release();

  private:
    int descriptor_ = -1;
};

// A regular file, read at any offset. Reading past the end (a file cut meanwhile) is file.short.
class FileReader {
  public:
    explicit FileReader(const std::string& path);

    const std::string& path() const { return path_; }
    std::int64_t size_bytes() const { return size_bytes_; }  // when it was opened
    void read(std::int64_t offset_bytes, void* out, std::int64_t count_bytes) const;

  private:
    std::string path_;
    FileHandle handle_;
    std::int64_t size_bytes_ = 0;
};

// A file that grows at its end, one write(2) per append() where the system takes it whole: what was
// appended is readable after the process is killed.
class AppendFile {
  public:
    enum class Open { create_new, append };  // create_new: file.open when the file exists

    AppendFile() = default;
    AppendFile(const std::string& path, Open mode);

    const std::string& path() const { return path_; }
    bool is_open() const { return handle_.is_open(); }
    void append(const void* data, std::int64_t count_bytes);
    void append(const std::string& text);
    void sync();

  private:
    std::string path_;
    FileHandle handle_;
};

// A file that appears under its name whole or not at all: written as PATH.partial, then synced and
// renamed by commit(). Without commit() the destructor removes the partial file.
class AtomicFile {
  public:
    explicit AtomicFile(const std::string& path);
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    ~AtomicFile();

    const std::string& path() const { return path_; }
    void write(std::int64_t offset_bytes, const void* data, std::int64_t count_bytes);
    void commit();

  private:
    std::string path_;
    std::string partial_path_;
    FileHandle handle_;
};

// The whole file; file.read when it is larger than the limit.
std::string read_text_file(const std::string& path, std::int64_t limit_bytes = 64 << 20);
// Through AtomicFile.
void write_text_file(const std::string& path, const std::string& text);
// Like mkdir -p; file.folder names the part that cannot be made.
void make_folders(const std::string& path);
bool file_exists(const std::string& path);
// Bytes a user may still write on the file system of this path; -1 when unknown.
std::int64_t free_disk_bytes(const std::string& path);

}  // namespace ingot
