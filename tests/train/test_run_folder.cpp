// Goal: a folder belongs to one run at a time, and whoever comes second is told who holds it.
// Method: locks held by child processes that live, end or are killed; lock files written by hand.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "engine/train/run_folder.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Contains;

namespace {

std::string this_host() {
    char name[256] = "";
    ::gethostname(name, sizeof(name) - 1);
    return name;
}

// A process that holds the lock of a folder until it is killed.
class HoldingChild {
  public:
    explicit HoldingChild(const std::string& folder) {
        int ready[2];
        REQUIRE(::pipe(ready) == 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            Log log;
            const FolderLock lock(folder, "log.dir", log);
            const char byte = 1;
            if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
            for (;;)
                ::pause();
        }
        char byte = 0;
        REQUIRE(::read(ready[0], &byte, 1) == 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~HoldingChild() { kill(); }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    ::pid_t pid() const { return pid_; }

  private:
    ::pid_t pid_ = -1;
};

doctest::String lock_refused(const std::string& folder) {
    return error_of("run.locked", [&] {
        Log log;
        FolderLock lock(folder, "log.dir", log);
    });
}

TrainConfig config_in(const TempFolder& folder) {
    TrainConfig config;
    config.log.dir = folder / "run";
    config.checkpoint.dir = folder / "run/checkpoints";
    return config;
}

}  // namespace

TEST_CASE("run folder: a second run is refused and told host, process and start of the first") {
    const TempFolder folder;
    HoldingChild first(folder / "run");
    const doctest::String message = lock_refused(folder / "run");
    CHECK(message == Contains(str("log.dir = ", folder / "run", " is in use by process ",
                                  first.pid(), " on host ", this_host(), ", which started at 2")
                                  .c_str()));
    CHECK(message == Contains("choose another log.dir"));
}

TEST_CASE("run folder: two locks of one process exclude each other too, and a clean end frees it") {
    const TempFolder folder;
    Log log;
    {
        const FolderLock first(folder.path(), "log.dir", log);
        CHECK(lock_refused(folder.path()) == Contains(str("process ", ::getpid(), " on").c_str()));
        // A refusal does not break the lock that is held.
        CHECK(lock_refused(folder.path()) == Contains(str("process ", ::getpid(), " on").c_str()));
    }
    CHECK(read_all(folder / "run.lock").empty());
    CHECK(lock_refused(folder.path()) == "");
}

TEST_CASE("run folder: the lock of a killed process is taken over, and the log says so") {
    const TempFolder folder;
    HoldingChild first(folder / "run");
    const ::pid_t pid = first.pid();
    first.kill();
    CHECK_FALSE(read_all(folder / "run/run.lock").empty());
    Log log;
    log.open_file(folder / "log");
    { const FolderLock lock(folder / "run", "log.dir", log); }
    CHECK(doctest::String(read_all(folder / "log").c_str()) ==
          Contains(str("took over the lock of process ", pid, " on host ", this_host()).c_str()));
}

TEST_CASE(
    "run folder: without locks of the file system the file still tells live owners from dead") {
    const TempFolder folder;
    const std::string path = folder / "run.lock";
    // Process 1 lives; with other start ticks the number was given again.
    write_all(path, this_host() + "\n1\n2026-01-01T00:00:00Z\n\n");
    CHECK(lock_refused(folder.path()) == Contains("in use by process 1 on host"));
    write_all(path, this_host() + "\n1\n2026-01-01T00:00:00Z\n999999999999\n");
    CHECK(lock_refused(folder.path()) == "");
    write_all(path, "node-of-a-rack\n4711\n2026-01-01T00:00:00Z\n5\n");
    CHECK(lock_refused(folder.path()) ==
          Contains("process 4711 on host node-of-a-rack, which started at 2026-01-01T00:00:00Z"));
    CHECK(lock_refused(folder.path()) == Contains("if that run is over, delete the file"));
    write_all(path, "rubbish");
    CHECK(lock_refused(folder.path()) == "");
}

TEST_CASE(
    "run folder: a run leaves its resolved configuration and its log, and both folders locked") {
    const TempFolder folder;
    TrainConfig config = config_in(folder);
    Log log;
    const RunFolder run(config, log);
    log.info("hello");
    CHECK_FALSE(file_exists(folder / "run/config.json"));
    run.save_config(config);
    CHECK(run.log_dir() == config.log.dir);
    CHECK(run.checkpoint_dir() == config.checkpoint.dir);
    CHECK(read_all(folder / "run/config.json") == dump_config(config));
    CHECK(log.file_path() == folder / "run/rank_0000.log");
    CHECK(doctest::String(read_all(log.file_path()).c_str()) == Contains(" info hello\n"));
    CHECK(lock_refused(folder / "run") != "");
    CHECK(lock_refused(folder / "run/checkpoints") != "");
}

TEST_CASE("run folder: log and checkpoints may share a folder, under any spelling of it") {
    const TempFolder folder;
    TrainConfig config = config_in(folder);
    config.checkpoint.dir = folder / "run/../run/.";
    Log log;
    CHECK_NOTHROW(RunFolder(config, log));
}

TEST_CASE("run folder: two runs with different logs cannot share checkpoints") {
    const TempFolder folder;
    TrainConfig first = config_in(folder), second = config_in(folder);
    second.log.dir = folder / "second";
    Log log;
    const RunFolder run(first, log);
    CHECK(error_of("run.locked", [&] { RunFolder other(second, log); }) ==
          Contains(str("checkpoint.dir = ", folder / "run/checkpoints", " is in use").c_str()));
    CHECK_FALSE(file_exists(folder / "second/config.json"));
}

TEST_CASE(
    "run folder: the folder of another run is refused and left as it was, whatever resume says") {
    const TempFolder folder;
    TrainConfig config = config_in(folder);
    Log log;
    { RunFolder(config, log).save_config(config); }
    const std::string before = read_all(folder / "run/config.json");
    using Resume = TrainConfig::Checkpoint::Resume;
    for (const Resume resume : {Resume::none, Resume::automatic}) {
        config.checkpoint.resume = resume;
        config.train.seed = 99;
        CHECK(error_of("run.other_run", [&] { RunFolder second(config, log); }) ==
              Contains(str("log.dir = ", folder / "run", " holds another run").c_str()));
        CHECK(lock_refused(folder / "run") == "");  // the refusal left no lock
        CHECK(read_all(folder / "run/config.json") == before);
    }
}

TEST_CASE("run folder: a full disk and a file in the way are named") {
    const TempFolder folder;
    const TrainConfig config = config_in(folder);
    Log log;
    {
        const FileSizeLimit limit(300);  // enough for the locks, not for config.json
        CHECK(error_of("file.full", [&] { RunFolder(config, log).save_config(config); }) ==
              Contains(str("cannot write ", folder / "run/config.json").c_str()));
    }
    write_all(folder / "file", "x");
    TrainConfig wrong = config;
    wrong.log.dir = folder / "file";
    CHECK(error_of("file.folder", [&] { RunFolder run(wrong, log); }) ==
          Contains("file is a file"));
}

TEST_CASE("run folder: log files of ranks sort by rank") {
    CHECK(rank_log_path("runs/a", 3) == "runs/a/rank_0003.log");
    CHECK(rank_log_path("runs/a", 12345) == "runs/a/rank_12345.log");
}

TEST_CASE("run folder: root is warned only where there is a user ai") {
    CHECK(root_warning(true, true).find("running as root") == 0);
    CHECK(root_warning(true, true).find("sudo -u ai") != std::string::npos);
    CHECK(root_warning(true, false).empty());
    CHECK(root_warning(false, true).empty());
    CHECK_NOTHROW(root_warning());
}
