// Parameters, gradients and optimizer state of one rank that holds the whole model (no sharding):
// the GroupHooks of a single-rank run.
//
// Every group has flat buffers of one layout (model/param_table.h): params and grads in their own
// dtypes; master, m and v in fp32. Where params are fp32 they are their own master. One arena,
// sized by plan_param_store() before anything is allocated.
#pragma once

#include <vector>

#include "engine/core/arena.h"
#include "model/group_hooks.h"
#include "model/param_table.h"

namespace ingot {

struct ParamStoreOptions {
    DType params = DType::f32;
    DType grads = DType::f32;
    bool with_grads = true;      // false: evaluation, export
    bool with_optimizer = true;  // master, m, v
};

struct ParamStorePlan {
    struct Group {
        int params = -1, grads = -1, master = -1, m = -1, v = -1;  // regions; -1 = not there
    };
    ArenaPlan arena{"parameters"};
    std::vector<Group> groups;
};
ParamStorePlan plan_param_store(const ParamTable& table, const ParamStoreOptions& options);

class ParamStore : public GroupHooks {
  public:
    // `table` outlives the store.
    ParamStore(Context& context, const ParamTable& table, const ParamStoreOptions& options);

    const ParamTable& table() const { return table_; }
    const ParamStoreOptions& options() const { return options_; }
    int num_groups() const { return static_cast<int>(table_.groups.size()); }

    // Flat views of a group; null where the store has none (with_optimizer = false). master(g) is
    // params(g) when params are fp32.
    Tensor params(int group) const { return region(plan_.groups.at(group).params); }
    Tensor grads(int group) const { return region(plan_.groups.at(group).grads); }
    Tensor master(int group) const { return region(plan_.groups.at(group).master); }
    Tensor m(int group) const { return region(plan_.groups.at(group).m); }
    Tensor v(int group) const { return region(plan_.groups.at(group).v); }

    // GPT-2's initialization; a function of seed and the parameter's place in the table alone.
    void initialize(std::uint64_t seed);

    // Elements [begin, begin + count) of a tensor, from and to the host, row-major in our layout.
    // Writing sets the master and its rounded copy; reading reads the master, or params without
    // one. Both synchronize: they are for start, export and tests.
    void write(const ParamSpec& spec, std::int64_t begin, std::int64_t count, const float* values);
    void read(const ParamSpec& spec, std::int64_t begin, std::int64_t count, float* values) const;

    // Micro-step 0 of a step overwrites the gradients, later ones add to them.
    void begin_micro_step(std::int64_t micro_step) { accumulate_ = micro_step > 0; }

    ConstTensor before_forward(Stream stream, int group) override;
    void after_forward(Stream stream, int group) override;
    Backward before_backward(Stream stream, int group) override;
    void after_backward(Stream stream, int group, bool is_last_use) override;

  private:
    Tensor region(int index) const { return index < 0 ? Tensor{} : arena_.tensor(index); }

    Context& context_;
    const ParamTable& table_;
    ParamStoreOptions options_;
    ParamStorePlan plan_;
    Arena arena_;
    bool accumulate_ = false;
};

// Copies a flat range of a device tensor of f32 or bf16 to the host as fp32, and back (rounded to
// the dtype). Synchronizes the compute stream.
void read_floats(Context& context, ConstTensor src, float* values);
void write_floats(Context& context, Tensor dst, const float* values);

}  // namespace ingot
