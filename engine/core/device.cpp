#include "engine/core/device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/core/cpu_scheduler.h"
#include "engine/core/device_cuda.h"
#include "engine/core/host_waits.h"

namespace ingot {
namespace {

constexpr int kNumStreams = 3;
constexpr std::int64_t kAlignBytes = 256;  // what cudaMalloc gives, and enough for any vector load

using Clock = std::chrono::steady_clock;

}  // namespace

// ---------------------------------------------------------------------------------------- Event

struct Event::State {
    Context* context = nullptr;
    std::shared_ptr<CpuEventState> cpu;       // CPU
    std::shared_ptr<Clock::time_point> time;  // CPU: when the record was executed
    void* native = nullptr;                   // CUDA

    ~State() {
        if constexpr (kHasCuda) {
            if (native != nullptr) cuda_runtime::destroy_event(native);
        }
    }
};

Event::Event(Context& context) : state_(std::make_unique<State>()) {
    state_->context = &context;
    if (context.device() == Device::cuda) {
        if constexpr (kHasCuda) state_->native = cuda_runtime::make_event();
    } else {
        state_->cpu = std::make_shared<CpuEventState>();
        state_->time = std::make_shared<Clock::time_point>();
    }
}
Event::~Event() = default;
Event::Event(Event&& other) noexcept = default;
Event& Event::operator=(Event&& other) noexcept = default;

bool Event::is_complete() const {
    if constexpr (kHasCuda) {
        if (state_->native != nullptr) return cuda_runtime::is_event_complete(state_->native);
    }
    return state_->cpu->completed >= state_->cpu->recorded;
}

void Event::synchronize() const {
    ++state_->context->object<HostWaits>().for_events;
    if constexpr (kHasCuda) {
        if (state_->native != nullptr) return cuda_runtime::synchronize_event(state_->native);
    }
    if (CpuScheduler* scheduler = state_->context->scheduler_.get()) {
        scheduler->run_until([this] { return is_complete(); });
    }
}

double Event::elapsed_ms(const Event& begin, const Event& end) {
    if constexpr (kHasCuda) {
        if (begin.state_->native != nullptr) {
            return cuda_runtime::elapsed_ms(begin.state_->native, end.state_->native);
        }
    }
    return std::chrono::duration<double, std::milli>(*end.state_->time - *begin.state_->time)
        .count();
}

// --------------------------------------------------------------------------------------- Stream

Device Stream::device() const {
    return context_->device();
}

void Stream::enqueue(std::function<void()> work) const {
    context_->scheduler_->push_work(index_, std::move(work));
}

void Stream::record(Event& event) const {
    if constexpr (kHasCuda) {
        if (native_ != nullptr) return cuda_runtime::record_event(event.state_->native, native_);
    }
    run([time = event.state_->time] { *time = Clock::now(); });
    if (CpuScheduler* scheduler = context_->scheduler_.get()) {
        scheduler->push_record(index_, event.state_->cpu);
    }
}

void Stream::wait(const Event& event) const {
    if constexpr (kHasCuda) {
        if (native_ != nullptr) return cuda_runtime::wait_event(native_, event.state_->native);
    }
    if (CpuScheduler* scheduler = context_->scheduler_.get()) {
        scheduler->push_wait(index_, event.state_->cpu);
    }
}

void Stream::synchronize() const {
    ++context_->object<HostWaits>().for_streams;
    if constexpr (kHasCuda) {
        if (native_ != nullptr) return cuda_runtime::synchronize_stream(native_);
    }
    if (CpuScheduler* scheduler = context_->scheduler_.get()) {
        scheduler->run_until([&] { return scheduler->is_empty(index_); });
    }
}

// -------------------------------------------------------------------------------------- Context

Context::Context(Device device, int device_index) : device_(device), device_index_(device_index) {
    for (int i = 0; i < kNumStreams; ++i) {
        void* native = nullptr;
        if constexpr (kHasCuda) {
            if (device == Device::cuda) native = cuda_runtime::make_stream();
        }
        streams_.push_back(Stream(this, i, native));
    }
}

std::unique_ptr<Context> Context::make_cpu(const CpuContextOptions& options) {
    std::unique_ptr<Context> context(new Context(Device::cpu, 0));
    if (options.mode == CpuMode::adversarial) {
        context->scheduler_ = std::make_unique<CpuScheduler>(kNumStreams, options.seed);
    }
    return context;
}

std::unique_ptr<Context> Context::make_cuda(int device_index) {
    if constexpr (kHasCuda) {
        cuda_runtime::require_usable_device(device_index);
        cuda_runtime::set_device(device_index);
        return std::unique_ptr<Context>(new Context(Device::cuda, device_index));
    } else {
        fail("device.no_cuda_build", "train.device = cuda (device ", device_index,
             "), but this build holds no CUDA code; build it with `make build` on a machine with "
             "nvcc, or use --train.device=cpu");
    }
}

Context::~Context() {
    objects_.clear();  // library handles go before the streams that they use
    if constexpr (kHasCuda) {
        for (const Stream& stream : streams_) {
            if (stream.native_ != nullptr) cuda_runtime::destroy_stream(stream.native_);
        }
    }
}

void Context::synchronize() const {
    for (const Stream& stream : streams_)
        stream.synchronize();
}

// --------------------------------------------------------------------------------------- Buffer

Buffer::Buffer(Context& context, std::int64_t size_bytes, const std::string& name, Kind kind)
    : size_bytes_(size_bytes),
      device_(kind == Kind::device ? context.device() : Device::cpu),
      is_cuda_memory_(context.device() == Device::cuda),
      allocated_bytes_(context.allocated_bytes_) {
    ENSURE(size_bytes >= 0, "memory.size", "buffer ", name, ": ", size_bytes, " bytes");
    const std::int64_t rounded = (size_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    if (rounded == 0) return;
    if constexpr (kHasCuda) {
        if (is_cuda_memory_) {
            data_ = kind == Kind::pinned ? cuda_runtime::allocate_pinned(rounded, name.c_str())
                                         : cuda_runtime::allocate(rounded, name.c_str());
            *allocated_bytes_ += size_bytes;
            return;
        }
    }
    data_ = std::aligned_alloc(kAlignBytes, static_cast<std::size_t>(rounded));
    ENSURE(data_ != nullptr, "memory.out_of_memory", "buffer ", name, ": the host refused ",
           rounded, " bytes; use a smaller batch, sequence or model");
    std::memset(data_, 0, static_cast<std::size_t>(rounded));
    *allocated_bytes_ += size_bytes;
}

void Buffer::release() noexcept {
    if (data_ == nullptr) return;
    *allocated_bytes_ -= size_bytes_;
    if constexpr (kHasCuda) {
        if (is_cuda_memory_) return cuda_runtime::release(data_, device_ == Device::cpu);
    }
    std::free(data_);
}

Buffer::~Buffer() {
    release();
}

Buffer::Buffer(Buffer&& other) noexcept {
    *this = std::move(other);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this != &other) {
        release();
        data_ = std::exchange(other.data_, nullptr);
        size_bytes_ = std::exchange(other.size_bytes_, 0);
        device_ = other.device_;
        is_cuda_memory_ = other.is_cuda_memory_;
        allocated_bytes_ = other.allocated_bytes_;
    }
    return *this;
}

Tensor Buffer::tensor(DType dtype,
                      std::initializer_list<std::int64_t> dims,
                      std::int64_t offset_bytes) const {
    Tensor view = make_tensor(static_cast<char*>(data_) + offset_bytes, dtype, dims, device_);
    ENSURE(offset_bytes >= 0 && offset_bytes % size_of(dtype) == 0 &&
               offset_bytes + view.size_bytes() <= size_bytes_,
           "memory.view", "view ", view.shape_string(), " at byte ", offset_bytes,
           " of a buffer of ", size_bytes_, " bytes");
    return view;
}

// ----------------------------------------------------------------------------------- copy, fill

void copy(Stream stream, Tensor dst, ConstTensor src) {
    ENSURE(dst.dtype == src.dtype && dst.numel() == src.numel(), "tensor.copy", "copy of ",
           src.shape_string(), " to ", dst.shape_string(), ": types or sizes differ");
    if (dst.numel() == 0) return;
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) {
            return cuda_runtime::copy_async(dst.data, src.data, dst.size_bytes(), stream.native());
        }
    }
    stream.run([dst, src] {
        std::memmove(dst.data, src.data, static_cast<std::size_t>(dst.size_bytes()));
    });
}

void fill_zero(Stream stream, Tensor dst) {
    if (dst.numel() == 0) return;
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) {
            return cuda_runtime::fill_zero_async(dst.data, dst.size_bytes(), stream.native());
        }
    }
    stream.run([dst] { std::memset(dst.data, 0, static_cast<std::size_t>(dst.size_bytes())); });
}

// ---------------------------------------------------------------------------------------- facts

DeviceInfo cuda_device_info(int device_index) {
    if constexpr (kHasCuda) {
        return cuda_runtime::device_info(device_index);
    } else {
        fail("device.no_cuda_build", "device ", device_index,
             " was asked for its properties, but this build holds no CUDA code");
    }
}

bool pci_bus_has_nvidia_device(const std::string& sysfs_root) {
    namespace fs = std::filesystem;
    const auto read_word = [](const fs::path& file) {
        std::string word;
        std::ifstream(file) >> word;
        return word;
    };
    std::error_code error;
    const fs::path devices = fs::path(sysfs_root) / "bus/pci/devices";
    for (const auto& entry : fs::directory_iterator(devices, error)) {
        const bool is_display_class = read_word(entry.path() / "class").rfind("0x03", 0) == 0;
        if (is_display_class && read_word(entry.path() / "vendor") == "0x10de") return true;
    }
    return false;
}

}  // namespace ingot
