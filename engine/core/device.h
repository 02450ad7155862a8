// Context, Stream, Event, Buffer: where work runs and where memory lives.
//
// A Context belongs to one rank and one device. It owns the streams and, through object<T>(), the
// per-device state of the layers above (library handles, workspaces, matmul plans), so that nothing
// in the engine is a mutable global and 32 ranks can be 32 threads of one process.
//
// Streams order work like CUDA streams do. A CPU stream in *immediate* mode runs work inside the
// call. In *adversarial* mode (tests) it queues the work; synchronize() then runs queued work of
// all streams in a random order, drawn from a seed, that respects only what the program asked for:
// the order within a stream, and recorded events that are waited for. A missing wait therefore
// fails on a machine without a GPU (docs/adr/0005-adversarial-streams.md).
//
// Thread safety: a Context, its streams and events are used by one host thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/core/build_config.h"
#include "engine/core/tensor.h"

namespace ingot {

class Context;
class CpuScheduler;
class OpProfile;

// A point in a stream. Record it in one stream, wait for it in another. Move only.
class Event {
  public:
    explicit Event(Context& context);
    ~Event();
    Event(Event&& other) noexcept;
    Event& operator=(Event&& other) noexcept;

    bool is_complete() const;  // true before the first record
    void synchronize() const;  // blocks the host until the recorded point is reached
    // Milliseconds between two recorded, completed events of one Context.
    static double elapsed_ms(const Event& begin, const Event& end);

  private:
    friend class Stream;
    struct State;
    std::unique_ptr<State> state_;
};

// A cheap handle; pass it by value, first. Valid while its Context lives.
class Stream {
  public:
    Device device() const;
    Context& context() const { return *context_; }
    void* native() const { return native_; }  // cudaStream_t; nullptr on the CPU
    bool is_compute_stream() const { return index_ == 0; }

    // CPU only: runs work now, or queues it in adversarial mode. Work must capture by value.
    template <class Work>
    void run(Work&& work) const;

    void record(Event& event) const;
    void wait(const Event& event) const;
    void synchronize() const;

  private:
    friend class Context;
    Stream(Context* context, int index, void* native)
        : context_(context), index_(index), native_(native) {}
    void enqueue(std::function<void()> work) const;

    Context* context_;
    int index_;
    void* native_;
};

enum class CpuMode { immediate, adversarial };

struct CpuContextOptions {
    CpuMode mode = CpuMode::immediate;
    std::uint64_t seed = 0;  // of the adversarial order
};

class Context {
  public:
    static std::unique_ptr<Context> make_cpu(const CpuContextOptions& options = {});
    // Throws device.no_cuda_build, device.index, or why the device cannot be used
    // (engine/core/device_error.h): no driver or one too old, a busy device, one below sm_80.
    static std::unique_ptr<Context> make_cuda(int device_index);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    Device device() const { return device_; }
    int device_index() const { return device_index_; }  // 0 on the CPU
    bool is_immediate() const { return scheduler_ == nullptr; }

    Stream compute_stream() const { return streams_[0]; }  // forward, backward, optimizer
    Stream comm_stream() const { return streams_[1]; }     // collectives
    Stream copy_stream() const { return streams_[2]; }     // batches in, losses out
    void synchronize() const;                              // all streams
    // Bytes of the Buffers that live now, device and pinned.
    std::int64_t allocated_bytes() const { return *allocated_bytes_; }
    // What records the times of ops now (engine/core/op_range.h); null: nothing does.
    OpProfile* op_profile() const { return op_profile_; }
    void set_op_profile(OpProfile* profile) { op_profile_ = profile; }

    // The one T of this context, default-constructed at first use.
    template <class T>
    T& object();

  private:
    friend class Stream;
    friend class Event;
    friend class Buffer;
    Context(Device device, int device_index);

    Device device_;
    int device_index_;
    std::unique_ptr<CpuScheduler> scheduler_;  // adversarial mode only
    std::vector<Stream> streams_;
    std::unordered_map<std::type_index, std::shared_ptr<void>> objects_;
    std::shared_ptr<std::int64_t> allocated_bytes_ = std::make_shared<std::int64_t>(0);
    OpProfile* op_profile_ = nullptr;
};

// Owned memory on a device (or pinned on the host), 256-byte aligned and zeroed.
class Buffer {
  public:
    enum class Kind { device, pinned };  // pinned: host memory the device copies from and to

    Buffer() = default;
    // Throws memory.out_of_memory, naming the buffer, its bytes and what is free.
    Buffer(Context& context,
           std::int64_t size_bytes,
           const std::string& name,
           Kind kind = Kind::device);
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;

    void* data() const { return data_; }
    std::int64_t size_bytes() const { return size_bytes_; }
    Device device() const { return device_; }
    // A view of a part of the buffer; throws memory.view when it does not fit or is not aligned.
    Tensor tensor(DType dtype,
                  std::initializer_list<std::int64_t> dims,
                  std::int64_t offset_bytes = 0) const;

  private:
    void release() noexcept;

    void* data_ = nullptr;
    std::int64_t size_bytes_ = 0;
    Device device_ = Device::cpu;
    bool is_cuda_memory_ = false;                    // device or pinned memory of the CUDA runtime
    std::shared_ptr<std::int64_t> allocated_bytes_;  // of the context, which may go first
};

// dst <- src: same dtype and number of elements, on any two devices. A host side must be pinned for
// the copy to be asynchronous.
void copy(Stream stream, Tensor dst, ConstTensor src);

// Sets every byte to zero.
void fill_zero(Stream stream, Tensor dst);

// Facts about a CUDA device, for the console and the records.
struct DeviceInfo {
    std::string name;
    std::string pci_bus_id;
    int compute_major = 0, compute_minor = 0;
    int num_multiprocessors = 0;
    std::int64_t total_bytes = 0, free_bytes = 0;
    int driver_version = 0, runtime_version = 0;  // 13000 = CUDA 13.0
};
DeviceInfo cuda_device_info(int device_index);

// Whether this machine has an NVIDIA display or 3D controller on its PCI bus, read from
// `sysfs_root`/bus/pci/devices; needs no driver.
bool pci_bus_has_nvidia_device(const std::string& sysfs_root = "/sys");

template <class Work>
void Stream::run(Work&& work) const {
    if (context_->is_immediate()) {
        std::forward<Work>(work)();
    } else {
        enqueue(std::function<void()>(std::forward<Work>(work)));
    }
}

template <class T>
T& Context::object() {
    std::shared_ptr<void>& slot = objects_[std::type_index(typeid(T))];
    if (slot == nullptr) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
}

}  // namespace ingot
