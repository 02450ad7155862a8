#include "engine/core/op_range.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/core/check.h"

namespace ingot {

OpProfile::OpProfile(Context& context) : context_(context) {
    ENSURE(context.op_profile() == nullptr, "profile.active",
           "op profile: the context has one already; stop it first");
    context.set_op_profile(this);
}

OpProfile::~OpProfile() {
    stop();
}

void OpProfile::stop() {
    if (context_.op_profile() == this) context_.set_op_profile(nullptr);
}

void OpProfile::begin(Stream stream, const char* name, const OpCost& cost) {
    if (!stream.is_compute_stream()) return;
    if (open_ >= 0) entries_[static_cast<std::size_t>(open_)].has_parts = true;
    entries_.push_back({name, cost, open_, false, Event(context_), Event(context_)});
    open_ = static_cast<int>(entries_.size()) - 1;
    stream.record(entries_.back().begin);
}

void OpProfile::end(Stream stream) noexcept {
    if (!stream.is_compute_stream() || open_ < 0) return;
    Entry& entry = entries_[static_cast<std::size_t>(open_)];
    open_ = entry.parent;
    try {
        stream.record(entry.end);
    } catch (const Error&) {
        // Called by a destructor: parts() meets the event that was not recorded, and throws.
    }
}

std::string OpProfile::path_of(const Entry& entry) const {
    if (entry.parent < 0) return entry.name;
    return path_of(entries_[static_cast<std::size_t>(entry.parent)]) + "/" + entry.name;
}

std::vector<OpPart> OpProfile::parts() const {
    std::map<std::pair<std::string, DType>, OpPart> by_name;
    for (const Entry& entry : entries_) {
        if (entry.has_parts) continue;
        entry.end.synchronize();
        OpPart& part = by_name[{path_of(entry), entry.cost.dtype}];
        part.calls += 1;
        part.ms += Event::elapsed_ms(entry.begin, entry.end);
        part.bytes += entry.cost.bytes;
        part.flops += entry.cost.flops;
    }
    std::vector<OpPart> parts;
    for (auto& [key, part] : by_name) {
        part.name = key.first;
        part.dtype = key.second;
        parts.push_back(part);
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const OpPart& a, const OpPart& b) { return a.ms > b.ms; });
    return parts;
}

}  // namespace ingot
