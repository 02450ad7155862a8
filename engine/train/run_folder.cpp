#include "engine/train/run_folder.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <pwd.h>
#include <signal.h>
#include <sstream>
#include <sys/file.h>
#include <unistd.h>
#include <vector>

#include "engine/core/check.h"
#include "engine/core/host.h"

namespace ingot {
namespace {

// Who holds a lock, as lines "host", "pid", "started", "clock" of the lock file.
struct Owner {
    std::string host;
    long pid = 0;
    std::string started_utc;
    // Start of the process in clock ticks after boot: with the pid it names one process.
    std::string started_ticks;

    bool known() const { return !host.empty() && pid > 0; }
    std::string text() const {
        return str("process ", pid, " on host ", host, ", which started at ", started_utc);
    }
};

// Field 22 of /proc/PID/stat; "" when there is no such process.
std::string start_ticks_of(long pid) {
    const std::string path = str("/proc/", pid, "/stat");
    const FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!handle.is_open()) return "";
    char buffer[2048];
    const ssize_t count = ::read(handle.get(), buffer, sizeof(buffer));
    const std::string text(buffer, count > 0 ? static_cast<std::size_t>(count) : 0);
    const std::size_t name_end = text.rfind(')');  // the name may hold spaces
    if (name_end == std::string::npos) return "";
    std::istringstream fields(text.substr(name_end + 1));
    std::string field;
    for (int number = 3; number <= 22 && fields >> field; ++number) {
    }
    return field;
}

bool is_alive(const Owner& owner) {
    if (::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH) return false;
    const std::string ticks = start_ticks_of(owner.pid);
    // Another process may have been given the number since.
    return ticks.empty() || owner.started_ticks.empty() || ticks == owner.started_ticks;
}

Owner read_owner(const FileHandle& handle) {
    char buffer[1024];
    const ssize_t count = ::pread(handle.get(), buffer, sizeof(buffer), 0);
    std::istringstream text(std::string(buffer, count > 0 ? static_cast<std::size_t>(count) : 0));
    Owner owner;
    std::string pid;
    std::getline(text, owner.host);
    std::getline(text, pid);
    std::getline(text, owner.started_utc);
    std::getline(text, owner.started_ticks);
    owner.pid = std::strtol(pid.c_str(), nullptr, 10);
    return owner;
}

void write_owner(const FileHandle& handle, const std::string& path) {
    const std::string text =
        str(host_name(), "\n", ::getpid(), "\n", utc_now(), "\n", start_ticks_of(::getpid()), "\n");
    const bool written =
        ::ftruncate(handle.get(), 0) == 0 &&
        ::pwrite(handle.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
    const int error = errno;
    ENSURE(written, error == ENOSPC || error == EDQUOT ? "file.full" : "file.write",
           "cannot write ", path, ": ", std::strerror(error), "; ", free_disk_bytes(path),
           " bytes are free there");
}

[[noreturn]] void fail_locked(const std::string& folder,
                              const std::string& what,
                              const std::string& owner) {
    fail("run.locked", "run: ", what, " = ", folder, " is in use by ", owner,
         "; wait for that run to end, or choose another ", what);
}

std::string canonical(const std::string& folder) {
    std::error_code ignored;
    const std::string result = std::filesystem::weakly_canonical(folder, ignored).string();
    return result.empty() ? folder : result;
}

bool has_user(const char* name) {
    passwd entry{};
    passwd* found = nullptr;
    std::vector<char> buffer(16384);
    return ::getpwnam_r(name, &entry, buffer.data(), buffer.size(), &found) == 0 &&
           found != nullptr;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& what, Log& log) {
    make_folders(folder);
    const std::string path = folder + "/run.lock";
    handle_ = FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    const int open_error = errno;
    ENSURE(handle_.is_open(), "file.open", "cannot open ", path, ": ", std::strerror(open_error));
    const int locked = ::flock(handle_.get(), LOCK_EX | LOCK_NB);
    const int error = errno;
    const Owner owner = read_owner(handle_);
    if (locked != 0) {
        const bool held = error == EWOULDBLOCK;
        if (!held) handle_ = FileHandle();
        ENSURE(held, "run.lock", "run: cannot lock ", path, ": ", std::strerror(error),
               "; choose a ", what, " on a file system with locks");
        handle_ = FileHandle();  // the destructor of a failed constructor does not run
        fail_locked(folder, what, owner.known() ? owner.text() : "another process");
    }
    if (owner.known()) {
        // The lock is ours, but its last owner did not end cleanly - or the file system keeps no
        // locks between hosts.
        const bool is_here = owner.host == host_name();
        if (is_here && is_alive(owner) && owner.pid != ::getpid()) {
            fail_locked(folder, what, owner.text());
        }
        if (!is_here) {
            fail_locked(folder, what,
                        str(owner.text(), ", as ", path, " says; it cannot be checked from host ",
                            host_name(), ": if that run is over, delete the file"));
        }
        log.warning(str(what, " = ", folder, ": took over the lock of ", owner.text(),
                        " and is not running any more"));
    }
    write_owner(handle_, path);
}

FolderLock::~FolderLock() {
    // Empty says that the owner ended cleanly. The file stays: removing it would race with a
    // process that has it open.
    if (handle_.is_open() && ::ftruncate(handle_.get(), 0) != 0) return;
}

RunFolder::RunFolder(const TrainConfig& config, Log& log)
    : log_dir_(config.log.dir), checkpoint_dir_(config.checkpoint.dir) {
    log_lock_ = std::make_unique<FolderLock>(log_dir_, "log.dir", log);
    if (canonical(checkpoint_dir_) != canonical(log_dir_)) {
        checkpoint_lock_ = std::make_unique<FolderLock>(checkpoint_dir_, "checkpoint.dir", log);
    }
    const std::string path = log_dir_ + "/config.json";
    ENSURE(
        !file_exists(path), "run.other_run", "run: log.dir = ", log_dir_,
        " holds another run (it has a config.json), checkpoint.resume = ",
        config_value(config, "checkpoint.resume"),
        ", and this release cannot go on with one; choose another log.dir, or remove the folder");
    log.open_file(rank_log_path(log_dir_, log.rank()));
}

void RunFolder::save_config(const TrainConfig& config) const {
    write_text_file(log_dir_ + "/config.json", dump_config(config));
}

std::string rank_log_path(const std::string& log_dir, int rank) {
    std::string number = std::to_string(rank);
    if (number.size() < 4) number.insert(0, 4 - number.size(), '0');
    return log_dir + "/rank_" + number + ".log";
}

std::string root_warning(bool is_root, bool has_ai_user) {
    if (!is_root || !has_ai_user) return "";
    return "running as root on a machine that has the user ai; the files of this run will belong "
           "to "
           "root. Run it as ai: sudo -u ai ./train_gpt ...";
}

std::string root_warning() {
    return root_warning(::geteuid() == 0, has_user("ai"));
}

}  // namespace ingot
