// Goal: our event files are what the format says, down to the checksums, and survive a kill.
// Method: known answers, a strict reader of the format's own, the case files B74 and B76, a killed
// child.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "engine/train/tensorboard.h"
#include "tests/support/event_file.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Contains;

namespace {

const std::string kCases = source_dir() + "/tests/cases/";

std::vector<std::pair<std::int64_t, float>> points(const std::vector<EventScalar>& scalars) {
    std::vector<std::pair<std::int64_t, float>> result;
    for (const EventScalar& s : scalars)
        result.emplace_back(s.step, s.value);
    return result;
}

std::vector<std::string> event_files(const std::string& folder) {
    std::vector<std::string> paths;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
        paths.push_back(file.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace

TEST_CASE("tensorboard: the checksums are the known answers (B76)") {
    CHECK(crc32c("123456789", 9) == 0xe3069283U);
    CHECK(masked_crc32c("123456789", 9) == 0xc78ab0e5U);
    const std::uint64_t length = 24;
    CHECK(masked_crc32c(&length, 8) == 0x224b7fa3U);
    CHECK(crc32c("", 0) == 0U);
}

TEST_CASE("tensorboard: the test reader reads complete records and reports the torn tail (B76)") {
    using Points = std::vector<std::pair<std::int64_t, float>>;
    const Points all = {{1, 3.75F}, {2, 3.5F}, {3, 3.25F}, {4, 3.0F}, {5, 2.75F}};
    const EventFile good = read_event_file(kCases + "B76_tb_truncated/good.tfevents");
    CHECK(good.problem.empty());
    CHECK(good.num_records == 6);
    CHECK(points(good.scalars) == all);
    const EventFile cut = read_event_file(kCases + "B76_tb_truncated/last_record_cut.tfevents");
    CHECK(cut.problem.rfind("torn tail", 0) == 0);
    CHECK(points(cut.scalars) == Points(all.begin(), all.begin() + 4));
    const EventFile bad =
        read_event_file(kCases + "B76_tb_truncated/length_crc_bad_in_record_3.tfevents");
    CHECK(bad.problem.rfind("bad length checksum", 0) == 0);
    CHECK(points(bad.scalars) == Points(all.begin(), all.begin() + 2));
}

TEST_CASE("tensorboard: a START log voids the old points of the steps done again (B74)") {
    const EventFile first = read_event_file(kCases + "B74_tb_purge/run1.tfevents");
    const EventFile second =
        read_event_file(kCases + "B74_tb_purge/run2_with_session_start_at_6.tfevents");
    CHECK(first.scalars.size() + second.scalars.size() == 11);
    const auto merged = merged_scalars({first, second});
    REQUIRE(merged.size() == 8);
    for (std::size_t i = 0; i < merged.size(); ++i) {
        CHECK(merged[i].step == static_cast<std::int64_t>(i + 1));
    }
}

TEST_CASE("tensorboard: written scalars are read back with step, tag, value and wall time") {
    const TempFolder folder;
    TensorBoardWriter writer(folder.path(), 1);
    writer.write_at(1.5, 1, {{"loss", 3.75}, {"lr", 1e-4}});
    writer.write_at(2.5, 300, {{"loss", -0.1}});
    writer.write_at(3.5, std::int64_t{1} << 40, {{"loss", std::nan("")}});
    writer.write_at(4.5, 5, {});
    writer.write(6, {{std::string(300, 't').c_str(), 1}});
    writer.sync();
    const EventFile file = read_event_file(writer.path());
    CHECK(file.problem.empty());
    CHECK(file.file_version == "brain.Event:2");
    CHECK(file.num_records == 7);
    CHECK(file.session_start_steps == std::vector<std::int64_t>{1});
    REQUIRE(file.scalars.size() == 5);
    CHECK(file.scalars[0].tag == "loss");
    CHECK(file.scalars[0].value == 3.75F);
    CHECK(file.scalars[1].tag == "lr");
    CHECK(file.scalars[1].value == 1e-4F);
    CHECK(file.scalars[2].step == 300);
    CHECK(file.scalars[2].value == -0.1F);
    CHECK(file.scalars[3].step == std::int64_t{1} << 40);
    CHECK(file.scalars[3].value != file.scalars[3].value);
    CHECK(file.scalars[4].tag == std::string(300, 't'));
    CHECK(std::vector<double>(file.wall_times_s.begin() + 2, file.wall_times_s.begin() + 6) ==
          std::vector<double>{1.5, 2.5, 3.5, 4.5});
    CHECK(file.wall_times_s.back() > 1.7e9);
}

TEST_CASE("tensorboard: every writer has a file of its own, with the name readers look for") {
    const TempFolder folder;
    const TensorBoardWriter first(folder.path(), 1);
    const TensorBoardWriter second(folder.path(), 6);
    CHECK(first.path() != second.path());
    for (const std::string& path : {first.path(), second.path()}) {
        CHECK(doctest::String(path.c_str()) == Contains("/events.out.tfevents."));
        CHECK(doctest::String(path.c_str()) == Contains(str(".", ::getpid(), ".").c_str()));
    }
    CHECK(read_event_file(second.path()).session_start_steps == std::vector<std::int64_t>{6});
}

TEST_CASE(
    "tensorboard: after kill -9 all complete records are read, and a resumed run joins them") {
    const TempFolder folder;
    for (int round = 0; round < 10; ++round) {
        const std::int64_t first_step = 1 + 5 * round;
        const ::pid_t child = ::fork();
        if (child == 0) {
            TensorBoardWriter writer(folder.path(), first_step);
            for (std::int64_t step = first_step;; ++step) {
                writer.write(step, {{"loss", static_cast<double>(step)}});
            }
        }
        REQUIRE(child > 0);
        // The child has done enough steps when its file has grown like the others.
        const auto grown = [&] {
            const auto paths = event_files(folder.path());
            return static_cast<int>(paths.size()) == round + 1 &&
                   std::all_of(paths.begin(), paths.end(), [](const std::string& path) {
                       return std::filesystem::file_size(path) > 5000;
                   });
        };
        int waits = 0;
        while (!grown() && ++waits < 20000)
            ::usleep(1000);
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        REQUIRE(waits < 20000);
        std::vector<EventFile> files;
        for (const std::string& path : event_files(folder.path())) {
            files.push_back(read_event_file(path));
            CHECK(
                (files.back().problem.empty() || files.back().problem.rfind("torn tail", 0) == 0));
        }
        std::sort(files.begin(), files.end(), [](const EventFile& a, const EventFile& b) {
            return a.session_start_steps < b.session_start_steps;
        });
        const auto merged = merged_scalars(files);
        REQUIRE(merged.size() > 40);
        int wrong = 0;
        for (std::size_t i = 0; i < merged.size(); ++i) {
            wrong += merged[i].step == static_cast<std::int64_t>(i + 1) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}
