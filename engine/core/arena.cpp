#include "engine/core/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ingot {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

}  // namespace

int ArenaPlan::add(const std::string& region,
                   DType dtype,
                   std::initializer_list<std::int64_t> dims,
                   Lifetime lifetime) {
    ENSURE(size_bytes_ < 0, "memory.plan", "arena ", name_, ": region ", region,
           " was added after place()");
    ENSURE(lifetime.first <= lifetime.last, "memory.plan", "arena ", name_, ": region ", region,
           " lives from ", lifetime.first, " to ", lifetime.last);
    Region added;
    added.name = region;
    added.shape = make_tensor(static_cast<void*>(nullptr), dtype, dims, Device::cpu);
    added.lifetime = lifetime;
    regions_.push_back(std::move(added));
    return static_cast<int>(regions_.size()) - 1;
}

void ArenaPlan::place() {
    ENSURE(size_bytes_ < 0, "memory.plan", "arena ", name_, " was placed twice");
    std::vector<int> order(regions_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
        return regions_[a].shape.size_bytes() > regions_[b].shape.size_bytes();
    });

    std::vector<const Region*> placed;  // by offset
    size_bytes_ = 0;
    for (const int index : order) {
        Region& region = regions_[index];
        const std::int64_t size = round_up(region.shape.size_bytes(), kAlignBytes);
        std::int64_t offset = 0;
        for (const Region* other : placed) {
            if (!other->lifetime.overlaps(region.lifetime)) continue;
            if (other->offset_bytes >= offset + size) break;
            offset = std::max(
                offset, other->offset_bytes + round_up(other->shape.size_bytes(), kAlignBytes));
        }
        region.offset_bytes = offset;
        size_bytes_ = std::max(size_bytes_, offset + size);
        const auto by_offset = [](const Region* a, const Region* b) {
            return a->offset_bytes < b->offset_bytes;
        };
        placed.insert(std::upper_bound(placed.begin(), placed.end(), &region, by_offset), &region);
    }
}

std::int64_t ArenaPlan::size_bytes() const {
    ENSURE(size_bytes_ >= 0, "memory.plan", "arena ", name_, ": size asked before place()");
    return size_bytes_;
}

Arena::Arena(Context& context, ArenaPlan plan, Buffer::Kind kind)
    : plan_(std::move(plan)), buffer_(context, plan_.size_bytes(), plan_.name(), kind) {}

Tensor Arena::tensor(int region) const {
    const ArenaPlan::Region& r = plan_.regions().at(region);
    Tensor view;
    static_cast<TensorShape&>(view) = r.shape;
    view.device = buffer_.device();
    view.data = static_cast<char*>(buffer_.data()) + r.offset_bytes;
    return view;
}

}  // namespace ingot
