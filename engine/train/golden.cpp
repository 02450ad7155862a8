#include "engine/train/golden.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

#include "engine/core/token_order.h"
#include "engine/train/config.h"
#include "engine/train/hf_weights.h"
#include "engine/train/optimizer.h"
#include "engine/train/run_setup.h"
#include "kernels/cross_entropy.h"
#include "kernels/sum.h"
#include "model/decoder.h"
#include "model/families/gpt2.h"

namespace ingot {
namespace {

struct Limits {
    double logits, gradient, loss, grad_norm;
};

Limits limits_for(Device device, DType dtype) {
    if (dtype == DType::bf16) return {5e-2, 5e-2, 1e-2, 5e-2};
    return device == Device::cuda ? Limits{1e-4, 1e-3, 1e-5, 1e-4} : Limits{2e-5, 1e-4, 1e-5, 1e-4};
}

double norm_of(const std::vector<float>& values) {
    double squares = 0.0;
    for (const float value : values)
        squares += static_cast<double>(value) * value;
    return std::sqrt(squares);
}

// NaN becomes infinity, so that it fails every limit.
double worse(double a, double b) {
    return std::isnan(b) ? std::numeric_limits<double>::infinity() : std::max(a, b);
}

// The run of one golden folder. Tensors of the batch live on the context's device.
class GoldenRun {
  public:
    GoldenRun(Context& context, const std::string& folder, const GoldenOptions& options)
        : context_(context),
          stream_(context.compute_stream()),
          golden_(folder + "/golden.safetensors"),
          numbers_(read_numbers(folder + "/golden.json")),
          limits_(limits_for(context.device(),
                             options.grads == DType::bf16 ? options.grads : options.dtype)),
          B_(golden_.entry("inputs").shape.at(0)),
          T_(golden_.entry("inputs").shape.at(1)),
          micro_batch_(options.micro_batch > 0 ? options.micro_batch : B_),
          decoder_(context, read_gpt2_config(folder), activation_options(options)),
          store_(context, decoder_.params(), {.params = options.dtype, .grads = options.grads}),
          optimizer_(context, store_, optimizer_options()),
          batch_(context, 4 * B_ * T_ * 4, "golden batch") {
        ENSURE(B_ % micro_batch_ == 0, "golden.format", folder, ": ", B_,
               " rows do not divide into micro-batches of ", micro_batch_);
        import_hf_weights(folder, store_);
        std::vector<std::int32_t> ids = read_ids("inputs");
        std::vector<std::int32_t> order = order_of(ids);
        inputs_ = upload(ids, {B_, T_}, 0);
        order_ = upload(order, {B_ * T_, 2}, 2 * B_ * T_ * 4);
        ids = read_ids("targets");
        targets_ = upload(ids, {B_, T_}, B_ * T_ * 4);
    }

    std::vector<GoldenLine> run() {
        compare_logits();
        double loss = accumulate_gradients();
        lines_.push_back({"loss", relative(loss, number("loss")), limits_.loss});
        compare_gradients();
        compare_steps();
        return lines_;
    }

  private:
    using Json = nlohmann::json;

    static Json read_numbers(const std::string& path) {
        try {
            return Json::parse(read_text_file(path));
        } catch (const Json::exception& error) {
            fail("golden.format", path, ": ", error.what());
        }
    }

    double number(const char* key) const { return numbers_.at(key).get<double>(); }

    static double relative(double value, double expected) {
        return worse(0.0, std::fabs(value - expected) / std::fabs(expected));
    }

    ActivationOptions activation_options(const GoldenOptions& options) const {
        ActivationOptions activations;
        activations.B = micro_batch_;
        activations.T = T_;
        activations.recompute = options.recompute;
        activations.dtype = options.dtype;
        activations.device = context_.device();
        activations.attention = options.attention;
        activations.deterministic = options.deterministic;
        return activations;
    }

    OptimizerOptions optimizer_options() const {
        const Json& o = numbers_.at("optimizer");
        return {.beta1 = o.at("beta1").get<double>(),
                .beta2 = o.at("beta2").get<double>(),
                .eps = o.at("eps").get<double>(),
                .weight_decay = o.at("weight_decay").get<double>(),
                .grad_clip = o.at("grad_clip").get<double>()};
    }

    std::vector<std::int32_t> read_ids(const char* name) {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(B_ * T_));
        golden_.read_i32(name, 0, B_ * T_, ids.data());
        const std::int64_t V = decoder_.config().vocab_size;
        const bool may_mask = std::string(name) == "targets";
        for (const std::int32_t id : ids) {
            ENSURE((id >= 0 && id < V) || (may_mask && id == kMaskedTarget), "golden.format",
                   "golden.safetensors: ", name, " hold the id ", id,
                   ", must be below the vocabulary's size, ", V, "; make the folder anew");
        }
        return ids;
    }

    // (B * T, 2): that of each micro-batch, one after the other.
    std::vector<std::int32_t> order_of(const std::vector<std::int32_t>& ids) const {
        std::vector<std::int32_t> order(2 * ids.size());
        const std::int64_t tokens = micro_batch_ * T_;
        for (std::int64_t begin = 0; begin < B_ * T_; begin += tokens)
            TokenSorter().sort(ids.data() + begin, tokens, order.data() + 2 * begin);
        return order;
    }

    Tensor upload(std::vector<std::int32_t>& values,
                  std::initializer_list<std::int64_t> dims,
                  std::int64_t offset_bytes) {
        const Tensor tensor = batch_.tensor(DType::i32, dims, offset_bytes);
        copy(stream_, tensor, make_tensor(values.data(), DType::i32, dims, Device::cpu));
        stream_.synchronize();
        return tensor;
    }

    void compare_logits() {
        const std::int64_t V = decoder_.config().vocab_size;
        const std::int64_t Vp = decoder_.config().padded_vocab_size();
        std::vector<float> expected(static_cast<std::size_t>(V));
        std::vector<float> actual(static_cast<std::size_t>(Vp));
        double error = 0.0;
        for (std::int64_t b = 0; b < B_; b += micro_batch_) {
            decoder_.forward(stream_, store_, inputs_.slice(b, b + micro_batch_));
            for (std::int64_t row = 0; row < micro_batch_ * T_; ++row) {
                const Tensor logits = decoder_.logits(stream_, store_, row, 1);
                read_floats(context_, logits, actual.data());
                golden_.read_as_f32("logits", (b * T_ + row) * V, V, expected.data());
                for (std::int64_t v = 0; v < V; ++v) {
                    error = worse(error, std::fabs(actual[v] - expected[v]));
                }
            }
        }
        lines_.push_back({"logits", error, limits_.logits});
    }

    // Forward and backward of the whole batch; the mean loss.
    double accumulate_gradients() {
        for (std::int64_t b = 0; b < B_; b += micro_batch_) {
            const Tensor inputs = inputs_.slice(b, b + micro_batch_);
            store_.begin_micro_step(b / micro_batch_);
            decoder_.forward(stream_, store_, inputs);
            const Tensor order = order_.slice(b * T_, (b + micro_batch_) * T_);
            const Tensor losses = decoder_.loss_and_backward(stream_, store_, order,
                                                             targets_.slice(b, b + micro_batch_));
            sum(stream_, {.out = optimizer_.loss_sum(), .inp = losses, .accumulate = b > 0});
        }
        float total = 0.0F;
        read_floats(context_, optimizer_.loss_sum(), &total);
        return total / static_cast<double>(B_ * T_);
    }

    void compare_gradients() {
        std::vector<std::vector<float>> expected;
        double all_squares = 0.0;
        for (const ParamSpec& spec : store_.table().params) {
            std::vector<float> theirs(static_cast<std::size_t>(spec.stored_numel()));
            golden_.read_as_f32("grad." + spec.hf_name, 0, spec.stored_numel(), theirs.data());
            all_squares += std::pow(norm_of(theirs), 2);
            expected.push_back(std::move(theirs));
        }
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const ParamSpec& spec = store_.table().params[i];
            std::vector<float> ours(static_cast<std::size_t>(spec.numel()));
            const Tensor flat = store_.grads(spec.group);
            read_floats(context_, flat.slice(spec.offset, spec.offset + spec.numel()), ours.data());
            std::vector<float> difference(expected[i].size());
            to_hf_layout(spec, ours.data(), difference.data());
            const float tokens = static_cast<float>(B_ * T_);  // ours is the sum, theirs the mean
            for (std::size_t j = 0; j < difference.size(); ++j) {
                difference[j] = difference[j] / tokens - expected[i][j];
            }
            const double limit =
                limits_.gradient * norm_of(expected[i]) + 1e-7 * std::sqrt(all_squares);
            lines_.push_back({"grad " + spec.hf_name, worse(0.0, norm_of(difference)), limit});
        }
    }

    // The gradients of the first step are there.
    void compare_steps() {
        const Json& losses = numbers_.at("losses");
        const Json& norms = numbers_.at("grad_norms");
        const double lr = numbers_.at("optimizer").at("lr").get<double>();
        for (std::size_t step = 1; step <= norms.size(); ++step) {
            optimizer_.step(stream_, static_cast<std::int64_t>(step), lr, B_ * T_);
            const StepResult result = optimizer_.result(static_cast<std::int64_t>(step));
            const double loss = accumulate_gradients();
            lines_.push_back({str("gradient norm of step ", step),
                              relative(result.grad_norm, norms.at(step - 1).get<double>()),
                              limits_.grad_norm});
            lines_.push_back({str("loss after step ", step),
                              relative(loss, losses.at(step).get<double>()), limits_.loss});
        }
    }

    Context& context_;
    Stream stream_;
    SafetensorsReader golden_;
    Json numbers_;
    Limits limits_;
    std::int64_t B_, T_, micro_batch_;
    Decoder decoder_;
    ParamStore store_;
    Optimizer optimizer_;
    Buffer batch_;
    Tensor inputs_, targets_, order_;
    std::vector<GoldenLine> lines_;
};

constexpr const char* kGoldenKeys[] = {
    "train.device",    "train.deterministic", "train.micro_batch",   "model.attention",
    "model.recompute", "precision.params",    "precision.grad_accum"};

bool is_golden_key(const std::string& name) {
    return std::find(std::begin(kGoldenKeys), std::end(kGoldenKeys), name) != std::end(kGoldenKeys);
}

}  // namespace

std::string golden_keys() {
    std::string list;
    for (const char* key : kGoldenKeys)
        list += str(list.empty() ? "" : ", ", key);
    return list;
}

GoldenCommand golden_command(const std::vector<std::string>& settings) {
    using Params = TrainConfig::Precision::Params;
    TrainConfig config;
    config.train.device = TrainConfig::Train::Device::cpu;
    config.train.micro_batch = 0;
    config.precision.params = Params::fp32;
    for (const std::string& setting : settings) {
        apply_override(config, setting);
        const std::size_t begin = setting.rfind("--", 0) == 0 ? 2 : 0;
        const std::string name = setting.substr(begin, setting.find('=') - begin);
        ENSURE(is_golden_key(name), "golden.setting", "golden_check: ", setting,
               " cannot be set: the folder gives model, batch and optimizer; allowed are ",
               golden_keys());
    }
    GoldenCommand command;
    command.device = resolve_device(config.train.device, pci_bus_has_nvidia_device());
    const bool is_bf16 =
        config.precision.params == Params::bf16 ||
        (config.precision.params == Params::automatic && command.device == Device::cuda);
    command.options.dtype = is_bf16 ? DType::bf16 : DType::f32;
    command.options.grads = config.precision.grad_accum == TrainConfig::Precision::GradAccum::bf16
                                ? DType::bf16
                                : DType::f32;
    command.options.attention = attention_method_from_name(config_value(config, "model.attention"));
    command.options.deterministic = config.train.deterministic;
    command.options.recompute = recompute_from_name(config_value(config, "model.recompute"));
    command.options.micro_batch = config.train.micro_batch;
    return command;
}

std::vector<GoldenLine> run_golden_check(Context& context,
                                         const std::string& folder,
                                         const GoldenOptions& options) {
    return GoldenRun(context, folder, options).run();
}

}  // namespace ingot
