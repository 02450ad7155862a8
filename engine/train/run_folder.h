// The folders of a run belong to one process at a time.
//
// A FolderLock is flock() on FOLDER/run.lock, which holds host, process id and start of its owner
// for the message to whoever comes second. A lock whose owner is dead on this host is taken over,
// and the log says so; a lock of another host that cannot be checked is refused. A clean end
// empties the file.
//
// A RunFolder is log.dir and checkpoint.dir, locked, with config.json of the run in log.dir. A
// folder with a config.json holds a run and is refused: this release cannot go on with one.
// Errors: run.locked, run.lock, run.other_run, file.*.
#pragma once

#include <memory>
#include <string>

#include "engine/core/file.h"
#include "engine/core/log.h"
#include "engine/train/config.h"

namespace ingot {

class FolderLock {
  public:
    // Makes the folder when it is missing. `what` is the key in messages: "log.dir".
    FolderLock(const std::string& folder, const std::string& what, Log& log);
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;
    ~FolderLock();

  private:
    FileHandle handle_;
};

class RunFolder {
  public:
    // Rank 0 only; other ranks call Log::open_file(rank_log_path(...)). Locks, refuses a folder
    // that holds a run, opens the log's file. Writes nothing of a run that is refused.
    RunFolder(const TrainConfig& config, Log& log);

    // Saves config.json, the resolved configuration; from here on the folder holds a run. Call it
    // when nothing can be refused any more.
    void save_config(const TrainConfig& config) const;

    const std::string& log_dir() const { return log_dir_; }
    const std::string& checkpoint_dir() const { return checkpoint_dir_; }

  private:
    std::string log_dir_;
    std::string checkpoint_dir_;
    std::unique_ptr<FolderLock> log_lock_;
    std::unique_ptr<FolderLock> checkpoint_lock_;  // null when the folders are one
};

std::string rank_log_path(const std::string& log_dir, int rank);  // LOG_DIR/rank_0003.log

// A sentence when training runs as root on a machine that has a user `ai`, else "".
std::string root_warning();
std::string root_warning(bool is_root, bool has_ai_user);

}  // namespace ingot
