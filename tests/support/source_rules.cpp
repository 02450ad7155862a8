#include "tests/support/source_rules.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>

#include "engine/core/check.h"

namespace ingot::test {
namespace {

bool starts_with(const std::string& text, const std::string& prefix) {
    return text.compare(0, prefix.size(), prefix) == 0;
}

bool ends_with(const std::string& text, const std::string& suffix) {
    return text.size() >= suffix.size() &&
           text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

std::string trimmed(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_name_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Where `word` stands alone in `text`, from `from` on; npos when it does not.
std::size_t find_word(const std::string& text, const std::string& word, std::size_t from = 0) {
    for (std::size_t at = text.find(word, from); at != std::string::npos;
         at = text.find(word, at + 1)) {
        const bool begins = at == 0 || !is_name_character(text[at - 1]);
        const std::size_t end = at + word.size();
        if (begins && (end == text.size() || !is_name_character(text[end]))) return at;
    }
    return std::string::npos;
}

bool has_word(const std::string& text, const std::string& word) {
    return find_word(text, word) != std::string::npos;
}

// What one file's rules share.
struct Review {
    const SourceFile& file;
    SourceLines lines;
    std::vector<std::string> problems;

    void add(std::size_t index, const std::string& problem, const std::string& fix) {
        problems.push_back(str(file.path, ":", index + 1, ": ", problem, "; ", fix));
    }
    bool is_in(const std::string& folder) const { return starts_with(file.path, folder + "/"); }
    bool is_library() const {
        return is_in("engine") || is_in("kernels") || is_in("comm") || is_in("data") ||
               is_in("model");
    }
    bool is_cuda() const { return ends_with(file.path, ".cu") || ends_with(file.path, ".cuh"); }
};

// --------------------------------------------------------------------------------------- layers

struct Layer {
    const char* folder;
    std::vector<const char*> may_include;
};

// The first folder that a path begins with decides.
const std::vector<Layer>& layers() {
    static const std::vector<Layer> kLayers = {
        {"engine/core/", {"engine/core/"}},
        {"kernels/", {"engine/core/", "kernels/"}},
        {"comm/", {"engine/core/", "comm/"}},
        {"data/", {"engine/core/", "data/"}},
        {"model/", {"engine/core/", "kernels/", "model/"}},
        {"engine/", {"engine/", "kernels/", "comm/", "data/", "model/"}},
        {"tools/", {"engine/", "kernels/", "comm/", "data/", "model/", "tools/"}},
        {"tests/",
         {"engine/", "kernels/", "comm/", "data/", "model/", "tools/", "tests/", "bench/"}},
        {"bench/",
         {"engine/", "kernels/", "comm/", "data/", "model/", "tools/", "tests/", "bench/"}},
    };
    return kLayers;
}

void check_layer(Review* review, std::size_t index, const std::string& included) {
    const auto begins = [](const char* folder, const std::string& path) {
        return starts_with(path, folder);
    };
    const bool is_from_root =
        std::any_of(layers().begin(), layers().end(),
                    [&](const Layer& layer) { return begins(layer.folder, included); });
    if (!is_from_root) {
        review->add(index, str("includes \"", included, "\", which is no path from the root"),
                    "write the path from the repository root");
        return;
    }
    for (const Layer& layer : layers()) {
        if (!begins(layer.folder, review->file.path)) continue;
        const bool is_allowed =
            std::any_of(layer.may_include.begin(), layer.may_include.end(),
                        [&](const char* folder) { return begins(folder, included); });
        if (!is_allowed) {
            review->add(
                index, str(layer.folder, " includes \"", included, "\" of a layer it may not know"),
                "move what needs both to a layer above both");
        }
        return;
    }
}

// ------------------------------------------------------------------------------- vendor headers

struct Vendor {
    const char* headers;  // regular expression
    const char* files;    // regular expression of the paths that may include them
};

constexpr Vendor kVendors[] = {
    {"cuda.*\\.h|cuda/.*|cooperative_groups.*|cub/.*|mma\\.h|curand.*",
     ".*\\.cuh?|engine/core/device_cuda\\.cpp"},
    {"nvtx3/.*", "engine/core/nvtx\\.cpp"},
    {"cublas.*\\.h", "kernels/matmul[a-z_]*\\.cu"},
    {"cudnn.*", "kernels/attention_cudnn\\..*"},
    {"nccl.*\\.h", "comm/nccl\\..*"},
    {"mpi\\.h", "comm/mpi\\..*|comm/bootstrap[a-z_]*\\.cpp"},
    {"cblas\\.h", "kernels/blas[a-z_]*\\.cpp"},
    {"nlohmann/json_fwd\\.hpp", "engine/train/.*|model/families/.*|tools/.*|tests/.*|bench/.*"},
    {"nlohmann/.*",
     "(engine/train|model/families|tools|bench)/.*\\.cpp|tests/.*|data/tokenizer\\.cpp"},
    {"CLI/.*", "engine/train/cli\\.cpp|tools/.*\\.cpp|bench/.*\\.cpp"},
    {"xxh.*\\.h", "data/.*\\.cpp"},
    {"doctest/.*", "tests/.*"},
};

void check_vendor(Review* review, std::size_t index, const std::string& included) {
    for (const Vendor& vendor : kVendors) {
        if (!std::regex_match(included, std::regex(vendor.headers))) continue;
        if (!std::regex_match(review->file.path, std::regex(vendor.files))) {
            review->add(index, str("includes <", included, "> outside its quarantine"),
                        str("only ", vendor.files, " may; call through its header"));
        }
        return;
    }
}

void check_includes(Review* review) {
    static const std::regex kInclude("\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");
    bool code_began = false;
    for (std::size_t i = 0; i < review->lines.raw.size(); ++i) {
        const std::string code = trimmed(review->lines.code[i]);
        if (code.empty()) continue;
        std::smatch match;
        if (code[0] != '#') {
            code_began = true;
        } else if (std::regex_match(review->lines.raw[i], match, kInclude)) {
            const std::string included = match[2];
            if (match[1] == "\"") check_layer(review, i, included);
            check_vendor(review, i, included);
            if (code_began) review->add(i, "includes after code", "move it to the top of the file");
        }
    }
}

// ----------------------------------------------------------------------------- calls and macros

// Whether the word at `at` is called as a free function: not a member, not a declaration.
bool is_free_call(const std::string& code, std::size_t at, std::size_t length) {
    std::size_t next = code.find_first_not_of(' ', at + length);
    if (next == std::string::npos || code[next] != '(') return false;
    std::string before = trimmed(code.substr(0, at));
    if (ends_with(before, "std::")) return true;
    if (ends_with(before, ".") || ends_with(before, "->")) return false;
    if (ends_with(before, "::")) {
        return before.size() == 2 || !is_name_character(before[before.size() - 3]);
    }
    if (before.empty() || !is_name_character(before.back())) return true;
    return ends_with(before, "return") || ends_with(before, "else");
}

struct BannedCall {
    const char* name;
    const char* fix;
};

constexpr BannedCall kBannedCalls[] = {
    {"exit", "throw through ENSURE or fail; main ends the program"},
    {"_exit", "throw through ENSURE or fail; main ends the program"},
    {"quick_exit", "throw through ENSURE or fail; main ends the program"},
    {"abort", "throw through ENSURE or fail; main ends the program"},
    {"terminate", "throw through ENSURE or fail; main ends the program"},
    {"assert", "use ENSURE, which says the value and the limit"},
    {"printf", "write through engine/core/log.h"},
    {"fprintf", "write through engine/core/log.h"},
    {"puts", "write through engine/core/log.h"},
    {"getenv", "read the configuration; launcher variables belong to the launch file"},
};

// Where a library may read what a launcher left in the environment.
constexpr const char* kLaunchFiles = "engine/train/launch\\.cpp|comm/bootstrap[a-z_]*\\.cpp";

void check_calls(Review* review) {
    if (!review->is_library()) return;
    const bool is_launch = std::regex_match(review->file.path, std::regex(kLaunchFiles));
    for (std::size_t i = 0; i < review->lines.code.size(); ++i) {
        const std::string& code = review->lines.code[i];
        for (const BannedCall& banned : kBannedCalls) {
            const std::string name = banned.name;
            const std::size_t at = find_word(code, name);
            if (at == std::string::npos || !is_free_call(code, at, name.size())) continue;
            if (name == "getenv" && is_launch) continue;
            review->add(i, str("a library calls ", name, "()"), banned.fix);
        }
    }
}

void check_condition(Review* review, std::size_t index, const std::string& directive) {
    static const std::regex kConditional("#\\s*(if|ifdef|ifndef|elif)\\b(.*)");
    static const std::regex kWord("[A-Za-z_]\\w*");
    std::smatch match;
    if (!review->is_library() || !std::regex_match(directive, match, kConditional)) return;
    const std::string condition = match[2];
    for (std::sregex_iterator word(condition.begin(), condition.end(), kWord), end; word != end;
         ++word) {
        const std::string name = word->str();
        // Two underscores: the compiler says what it compiles for.
        if (name == "defined" || name == "NDEBUG" || starts_with(name, "__")) continue;
        review->add(index, str("chooses by the macro ", name),
                    "choose the source file in CMake, or use if constexpr (kHas...)");
    }
}

void check_macro(Review* review, std::size_t index, const std::string& definition) {
    const auto has = [&](const char* word) { return has_word(definition, word); };
    if (has("return") || has("goto")) {
        review->add(index, "a macro hides a return or goto", "call a function that throws");
    } else if (has("if") && !has("do")) {
        review->add(index, "a macro holds an if without do { } while", "make it a function");
    }
}

void check_directives(Review* review) {
    for (std::size_t i = 0; i < review->lines.code.size(); ++i) {
        std::string directive = trimmed(review->lines.code[i]);
        if (directive.empty() || directive[0] != '#') continue;
        check_condition(review, i, directive);
        if (starts_with(directive, "#undef")) {
            review->add(i, "#undef", "put the header that needs it into a file of its own");
        }
        if (!starts_with(directive, "#define")) continue;
        const std::size_t first = i;
        while (directive.back() == '\\' && i + 1 < review->lines.code.size()) {
            directive.back() = ' ';
            directive += trimmed(review->lines.code[++i]);
            if (directive.empty()) break;
        }
        check_macro(review, first, directive);
    }
}

// --------------------------------------------------------------------------- comments and names

// A line of a comment that is a statement: `name(...);` or `name = value;`.
bool is_commented_out_code(const std::string& comment) {
    if (comment.empty() || comment.back() != ';') return false;
    static const std::regex kStatement(
        "([\\w :<>,&*.\\[\\]\"-]+ )?[\\w:.>\\[\\]-]+(\\(.*\\)| [-+*/|&]?= [^ ].*);");
    return std::regex_match(comment, kStatement);
}

void check_comments(Review* review) {
    static const std::regex kNumberedTodo("TODO *\\(?#[0-9]+\\)?.*");
    for (std::size_t i = 0; i < review->lines.comments.size(); ++i) {
        const std::string comment = trimmed(review->lines.comments[i]);
        if (comment.empty()) continue;
        for (const char* word : {"FIXME", "XXX", "hack", "HACK", "simply"}) {
            if (has_word(comment, word)) {
                review->add(i, str("a comment says ", word), "mend it, or say what holds and why");
            }
        }
        const std::size_t todo = find_word(comment, "TODO");
        if (todo != std::string::npos && !std::regex_match(comment.substr(todo), kNumberedTodo)) {
            review->add(i, "a TODO without a number",
                        "write TODO #12 with the number of the issue");
        }
        // Three spaces set a formula apart from prose.
        const std::size_t text_begins = review->lines.comments[i].find_first_not_of(' ');
        const bool is_formula = text_begins >= review->lines.raw[i].find("//") + 5;
        const bool stands_alone = trimmed(review->lines.code[i]).empty();
        if (stands_alone && !is_formula && is_commented_out_code(comment)) {
            review->add(i, "commented-out code", "delete it; the history keeps it");
        }
    }
}

void check_names(Review* review) {
    static const std::regex kPraise("(\\w+_)?(fast|optimized|improved)(_\\w+)?");
    static const std::regex kVersion(
        "\\w+_kernel_?[0-9]+|\\w+_(forward|backward)_?[0-9]+|\\w+_v[0-9]+");
    static const std::regex kName("[A-Za-z_]\\w*");
    static const std::regex kTemplate("template ?<([^<>]*)>");
    constexpr std::ptrdiff_t kMaxTemplateParameters = 4;
    for (std::size_t i = 0; i < review->lines.code.size(); ++i) {
        const std::string& code = review->lines.code[i];
        if (find_word(code, "namespace std") != std::string::npos) {
            review->add(i, "opens namespace std", "include the standard header and write std::");
        }
        std::smatch match;
        if (code.find("template") != std::string::npos &&
            std::regex_search(code, match, kTemplate)) {
            const std::string parameters = match[1];
            const auto count = 1 + std::count(parameters.begin(), parameters.end(), ',');
            if (count > kMaxTemplateParameters) {
                review->add(i, str(count, " template parameters, at most ", kMaxTemplateParameters),
                            "make those that the compiler does not need arguments");
            }
        }
        if (!review->is_library() || trimmed(code)[0] == '#') continue;
        for (std::sregex_iterator name(code.begin(), code.end(), kName), end; name != end; ++name) {
            if (std::regex_match(name->str(), kPraise) || std::regex_match(name->str(), kVersion)) {
                review->add(i, str("the name ", name->str(), " is praise or a version"),
                            "name what it does");
            }
        }
    }
}

// An op's function has a range with its own name, so that profiles know it.
void check_op_ranges(Review* review) {
    static const std::regex kFunction("void (\\w+)\\(Stream stream, const \\w+& args\\) \\{");
    if (!review->is_in("kernels") || !ends_with(review->file.path, ".cpp")) return;
    for (std::size_t i = 0; i < review->lines.code.size(); ++i) {
        std::smatch match;
        if (!std::regex_search(review->lines.code[i], match, kFunction)) continue;
        const std::string op = match[1];
        const std::regex range("OpRange range\\(\\s*stream, \"" + op + "\",");
        if (!std::regex_search(review->file.text, range)) {
            review->add(i, str("the op ", op, " has no range of its name"),
                        str("begin it with OpRange range(stream, \"", op, "\", {...})"));
        }
    }
}

void check_length(Review* review) {
    constexpr std::size_t kMaxLines = 500;
    constexpr std::size_t kMaxToolLines = 150;
    const std::size_t count = review->lines.raw.size();
    if (count > kMaxLines) {
        review->add(count - 1, str(count, " lines, at most ", kMaxLines),
                    "split the file where its subject changes");
    }
    const bool is_tool = review->is_in("tools") && ends_with(review->file.path, ".cpp");
    if (is_tool && count > kMaxToolLines) {
        review->add(count - 1, str(count, " lines in a main, at most ", kMaxToolLines),
                    "move the logic to engine/train/");
    }
}

}  // namespace

std::vector<std::string> problems_in(const SourceFile& file) {
    Review review{file, split_source(file.text), {}};
    check_length(&review);
    if (ends_with(file.path, ".py") || ends_with(file.path, ".sh")) return review.problems;
    check_includes(&review);
    check_calls(&review);
    check_directives(&review);
    check_comments(&review);
    check_names(&review);
    check_op_ranges(&review);
    return review.problems;
}

std::vector<std::string> missing_files(const std::vector<SourceFile>& files) {
    // An op's header declares a function of a stream and an args struct outside namespace cuda; a
    // header that does so inside only helps the .cu files.
    static const std::regex kOp("void \\w+\\(Stream stream, const \\w+& args\\);");
    std::set<std::string> paths;
    bool some_op_has_cuda = false;
    bool some_op_has_bench = false;
    for (const SourceFile& file : files) {
        paths.insert(file.path);
        const bool is_kernel = starts_with(file.path, "kernels/");
        some_op_has_cuda = some_op_has_cuda || (is_kernel && ends_with(file.path, ".cu"));
        some_op_has_bench = some_op_has_bench || starts_with(file.path, "bench/kernels/bench_");
    }
    std::vector<std::string> problems;
    for (const SourceFile& file : files) {
        const std::string& path = file.path;
        if (!starts_with(path, "kernels/") || !ends_with(path, ".h")) continue;
        const std::size_t cuda_begins =
            std::min(file.text.find("namespace cuda {"), file.text.find("namespace ingot::cuda {"));
        if (!std::regex_search(file.text.substr(0, cuda_begins), kOp)) continue;
        const std::string op = path.substr(8, path.size() - 8 - 2);
        std::vector<std::string> wanted = {"kernels/" + op + ".cpp",
                                           "tests/kernels/test_" + op + ".cpp"};
        if (some_op_has_bench) wanted.push_back("bench/kernels/bench_" + op + ".cpp");
        // A composition of other ops declares nothing in namespace cuda.
        const bool has_kernels = cuda_begins != std::string::npos;
        if (some_op_has_cuda && has_kernels) wanted.push_back("kernels/" + op + ".cu");
        for (const std::string& name : wanted) {
            if (paths.count(name) == 0) {
                problems.push_back(
                    str(path, ":1: the op has no ", name,
                        "; an op is its header, both backends, a test and a benchmark"));
            }
        }
    }
    return problems;
}

}  // namespace ingot::test
