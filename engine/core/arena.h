// Memory is planned, then allocated once. An ArenaPlan is arithmetic: named regions with a type, a
// shape and a lifetime become offsets and a total, without touching memory. An Arena allocates that
// total once and hands out views. So what `--plan` prints is what a run allocates, to the byte.
//
// Regions whose lifetimes do not overlap share memory. A lifetime is a closed interval of points in
// any order the caller defines (op numbers of a step, say); without one a region lives for ever.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "engine/core/device.h"

namespace ingot {

struct Lifetime {
    int first = std::numeric_limits<int>::min();
    int last = std::numeric_limits<int>::max();

    bool overlaps(const Lifetime& other) const {
        return first <= other.last && other.first <= last;
    }
};

class ArenaPlan {
  public:
    struct Region {
        std::string name;
        TensorShape shape;
        Lifetime lifetime;
        std::int64_t offset_bytes = 0;
    };

    explicit ArenaPlan(std::string name) : name_(std::move(name)) {}

    // Returns the region's index. Regions start at multiples of kAlignBytes.
    int add(const std::string& region,
            DType dtype,
            std::initializer_list<std::int64_t> dims,
            Lifetime lifetime = {});
    // Places the regions (largest first, each at the lowest offset that is free during its
    // lifetime); call once, after the last add().
    void place();

    const std::string& name() const { return name_; }
    const std::vector<Region>& regions() const { return regions_; }
    std::int64_t size_bytes() const;  // after place()

    static constexpr std::int64_t kAlignBytes = 256;

  private:
    std::string name_;
    std::vector<Region> regions_;
    std::int64_t size_bytes_ = -1;
};

class Arena {
  public:
    Arena() = default;
    // `plan` must be placed. Throws memory.out_of_memory like Buffer.
    Arena(Context& context, ArenaPlan plan, Buffer::Kind kind = Buffer::Kind::device);

    Tensor tensor(int region) const;
    const ArenaPlan& plan() const { return plan_; }
    const Buffer& buffer() const { return buffer_; }

  private:
    ArenaPlan plan_{""};
    Buffer buffer_;
};

}  // namespace ingot
