// Goal: planned equals allocated, and regions that live at the same time never overlap. Method:
// random plans checked pair by pair.
#include <doctest/doctest.h>

#include "engine/core/arena.h"
#include "engine/core/rng.h"

using namespace ingot;

TEST_CASE("arena: regions alive at the same time never share bytes, for 200 random plans") {
    for (std::uint64_t trial = 0; trial < 200; ++trial) {
        ArenaPlan plan("random");
        std::int64_t sum = 0;
        for (std::uint64_t i = 0; i < 24; ++i) {
            const PhiloxBlock draw = philox(trial, random_stream(RandomUse::test, 1), i);
            const int first = static_cast<int>(draw.word[0] % 10);
            const int last = first + static_cast<int>(draw.word[1] % 5);
            const std::int64_t size = draw.word[2] % 5000;
            plan.add(str("r", i), DType::u8, {size}, {first, last});
            sum += size + ArenaPlan::kAlignBytes;
        }
        plan.place();
        CHECK(plan.size_bytes() <= sum);
        int overlaps = 0;
        for (const auto& a : plan.regions()) {
            CHECK(a.offset_bytes % ArenaPlan::kAlignBytes == 0);
            CHECK(a.offset_bytes + a.shape.size_bytes() <= plan.size_bytes());
            for (const auto& b : plan.regions()) {
                if (&a == &b || !a.lifetime.overlaps(b.lifetime)) continue;
                const bool apart = a.offset_bytes + a.shape.size_bytes() <= b.offset_bytes ||
                                   b.offset_bytes + b.shape.size_bytes() <= a.offset_bytes;
                overlaps += apart ? 0 : 1;
            }
        }
        CHECK(overlaps == 0);
    }
}

TEST_CASE("arena: regions with disjoint lifetimes share memory") {
    ArenaPlan plan("shared");
    plan.add("early", DType::f32, {1000}, {0, 1});
    plan.add("late", DType::f32, {1000}, {2, 3});
    plan.place();
    CHECK(plan.size_bytes() == 4096);
}

TEST_CASE("arena: the allocation is the planned size and views have the planned shape") {
    ArenaPlan plan("exact");
    const int a = plan.add("a", DType::bf16, {3, 5});
    const int b = plan.add("b", DType::f32, {7});
    plan.place();
    const std::int64_t planned = plan.size_bytes();
    const auto context = Context::make_cpu();
    const Arena arena(*context, plan);
    CHECK(arena.buffer().size_bytes() == planned);
    CHECK(arena.tensor(a).shape_string() == "(3, 5) bf16");
    CHECK(arena.tensor(b).shape_string() == "(7) f32");
    CHECK(arena.tensor(a).data != arena.tensor(b).data);
}

TEST_CASE("arena: adding after place() is refused and names the arena and the region") {
    ArenaPlan plan("closed");
    plan.place();
    CHECK_THROWS_WITH_AS(plan.add("late", DType::f32, {1}),
                         "arena closed: region late was added after place()", Error);
}
