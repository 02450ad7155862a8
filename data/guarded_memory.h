// Reading memory-mapped files without dying of SIGBUS. When a file is truncated while it is mapped,
// or the storage fails, touching its pages raises SIGBUS, whose default is to kill the process.
// Here the reading thread comes back with `false` instead, and its caller names the file.
//
// Signal handlers belong to the process, so this is the one place of the engine with state outside
// objects: which handler was there before, and which range each thread is reading at the moment. A
// SIGBUS of any other origin goes on to the handler that was installed before (MPI's, a
// sanitizer's, or the default action).
#pragma once

#include <cstddef>

namespace ingot {

// Puts the SIGBUS handler in front of the present one. Does nothing when it is already there; call
// it again whenever a file is mapped, because other libraries install handlers too. Thread safe.
void install_bus_error_guard();

// Runs read(argument); false when an access to [begin, begin + size_bytes) raised SIGBUS. `read` is
// left in the middle then, without destructors: it may only load from the range and store to
// memory of its caller, and must not call read_guarded itself.
bool read_guarded(const void* begin,
                  std::size_t size_bytes,
                  void (*read)(void* argument),
                  void* argument);

}  // namespace ingot
