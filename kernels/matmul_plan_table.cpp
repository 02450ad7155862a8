#include "kernels/matmul_plan_table.h"

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <utility>

namespace ingot {
namespace {

constexpr const char* kFormatLine = "ingot-matmul-plans 1";
constexpr const char* kPassNames[] = {"forward", "dgrad", "wgrad"};
constexpr const char* kEpilogueNames[] = {"none", "bias", "gelu", "gelu_bias", "dgelu"};
constexpr std::size_t kWordDigits = 16;

// For a message, whatever the file holds: at most 100 characters, unprintable ones as "?".
std::string shown(const std::string& line) {
    constexpr std::size_t kMost = 100;
    std::string text = line.substr(0, kMost);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return line.size() > kMost ? str(text, "... (", line.size(), " bytes)") : text;
}

template <class Names>
int index_of(const Names& names, const std::string& name, const std::string& line) {
    int index = 0;
    for (const char* candidate : names) {
        if (name == candidate) return index;
        ++index;
    }
    fail("matmul.plan_format", "matmul plans: \"", shown(name), "\" in the line \"", shown(line),
         "\" is unknown; tune again");
}

// "general", or the algorithm's words in hexadecimal. False when it is neither.
bool parse_algorithm(const std::string& text, MatmulChoice* choice) {
    choice->is_general = text == "general";
    if (choice->is_general) return true;
    if (text.size() != kWordDigits * choice->algorithm.size()) return false;
    if (text.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
    for (std::size_t w = 0; w < choice->algorithm.size(); ++w) {
        choice->algorithm[w] = std::stoull(text.substr(kWordDigits * w, kWordDigits), nullptr, 16);
    }
    return true;
}

std::pair<MatmulKey, MatmulChoice> parse_line(const std::string& line) {
    std::istringstream in(line);
    std::string head, pass, epilogue, operand, result, mode, equals, algorithm;
    MatmulKey key{};
    MatmulChoice choice;
    in >> head >> pass >> epilogue >> operand >> result >> mode >> key.alignment >> key.N >>
        key.C >> key.OC >> equals >> algorithm >> choice.us;
    std::string more;
    const bool is_whole = !in.fail() && !(in >> more) && head == "plan" && equals == "=" &&
                          (mode == "add" || mode == "set") && parse_algorithm(algorithm, &choice);
    ENSURE(is_whole, "matmul.plan_format", "matmul plans: cannot read the line \"", shown(line),
           "\"; tune again");
    key.pass = static_cast<MatmulPass>(index_of(kPassNames, pass, line));
    key.epilogue = static_cast<MatmulEpilogue>(index_of(kEpilogueNames, epilogue, line));
    key.operand = dtype_from_name(operand.c_str());
    key.result = dtype_from_name(result.c_str());
    const auto is_float = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
    const int a = key.alignment;
    const bool is_possible = is_float(key.operand) && is_float(key.result) &&
                             (a == 2 || a == 4 || a == 8 || a == 16) && key.N > 0 && key.C > 0 &&
                             key.OC > 0 && choice.us >= 0.0;
    ENSURE(is_possible, "matmul.plan_format", "matmul plans: no matmul has the line \"",
           shown(line),
           "\": types are f32 or bf16, alignments 2, 4, 8 or 16, sizes above 0; tune again");
    key.accumulate = mode == "add";
    choice.is_chosen = true;
    return {key, choice};
}

}  // namespace

std::string MatmulKey::text() const {
    return str(kPassNames[static_cast<int>(pass)], " ", kEpilogueNames[static_cast<int>(epilogue)],
               " ", name_of(operand), " ", name_of(result), " ", accumulate ? "add" : "set", " ",
               alignment, " ", N, " ", C, " ", OC);
}

std::string format_matmul_plans(const MatmulOrigin& origin, const MatmulChoices& choices) {
    std::ostringstream out;
    out << kFormatLine << "\nlibrary " << origin.library << "\ngpu " << origin.gpu << '\n';
    for (const auto& [key, choice] : choices) {
        out << "plan " << key.text() << " = ";
        if (choice.is_general) {
            out << "general";
        } else {
            out << std::hex << std::setfill('0');
            for (const std::uint64_t word : choice.algorithm)
                out << std::setw(kWordDigits) << word;
            out << std::dec;
        }
        out << ' ' << choice.us << '\n';
    }
    return out.str();
}

MatmulChoices parse_matmul_plans(const MatmulOrigin& origin, const std::string& text) {
    std::istringstream in(text);
    std::string line;
    std::getline(in, line);
    ENSURE(line == kFormatLine, "matmul.plan_format", "matmul plans: the first line is \"",
           shown(line), "\", must be \"", kFormatLine, "\"; tune again");
    for (const std::string& expected : {"library " + origin.library, "gpu " + origin.gpu}) {
        std::getline(in, line);
        ENSURE(line == expected, "matmul.plan_device", "matmul plans: made with \"", shown(line),
               "\", this run has \"", expected, "\"; tune again (bits may differ)");
    }
    MatmulChoices choices;
    while (std::getline(in, line)) {
        if (line.empty()) continue;
        ENSURE(choices.insert(parse_line(line)).second, "matmul.plan_format",
               "matmul plans: the line \"", shown(line), "\" is there twice; tune again");
    }
    return choices;
}

}  // namespace ingot
