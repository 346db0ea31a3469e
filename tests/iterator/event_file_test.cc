#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "iterator/step_profile.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::internal {
namespace {

std::string OnlyFileIn(const std::string& folder) {
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_TRUE(path.empty());
    path = entry.path();
  }
  return path;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Integer>
Integer FixedAt(const std::string& bytes, size_t at) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= static_cast<Integer>(static_cast<unsigned char>(bytes.at(at + i)))
             << (8 * i);
  }
  return value;
}

// RFC 3720, B.4.
TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFile, IsRecordsWhoseChecksumsHold) {
  TemporaryFolder folder;
  {
    ASSERT_OK_AND_ASSIGN(auto events, EventFile::Open(folder.path(), 0));
    ASSERT_OK(events->AddScalar("loss", 7, 0.5));
    ASSERT_OK(events->AddScalar(std::string(300, 'x'), 1u << 30, -1));
  }
  const std::string bytes = ReadBytes(OnlyFileIn(folder.path()));
  int records = 0;
  std::string last;
  for (size_t at = 0; at < bytes.size(); ++records) {
    const auto length = FixedAt<uint64_t>(bytes, at);
    EXPECT_EQ(FixedAt<uint32_t>(bytes, at + 8),
              MaskedCrc32c(bytes.substr(at, 8)));
    last = bytes.substr(at + 12, length);
    EXPECT_EQ(FixedAt<uint32_t>(bytes, at + 12 + length), MaskedCrc32c(last));
    at += 12 + length + 4;
  }
  EXPECT_EQ(records, 4);  // the version, the start, two scalars
  EXPECT_NE(last.find(std::string(300, 'x')), std::string::npos);
  EXPECT_EQ(FixedAt<uint32_t>(last, last.size() - 4),
            std::bit_cast<uint32_t>(-1.0f));
}

TEST(EventFile, IsWrittenAtTheLatestWhenThereIsMuch) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(auto events, EventFile::Open(folder.path(), 0));
  const std::string path = OnlyFileIn(folder.path());
  const auto size = std::filesystem::file_size(path);
  ASSERT_OK(events->AddScalar("loss", 0, 1));
  EXPECT_EQ(std::filesystem::file_size(path), size);
  for (int i = 0; i < 1000; ++i) ASSERT_OK(events->AddScalar("loss", i, 1));
  EXPECT_GT(std::filesystem::file_size(path), 30'000u);
}

TEST(EventFile, APlaceThatCannotBeWrittenIsNamed) {
  const auto events = EventFile::Open("/proc/none", 0);
  EXPECT_EQ(events.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(events.status().message().find("GAVEL_TENSORBOARD_DIRECTORY"),
            absl::string_view::npos);
  EXPECT_NE(events.status().message().find("/proc/none"),
            absl::string_view::npos);
}

// ---- read by TensorBoard itself

int RunPython(const std::string& script, const std::string& arguments) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/script.py";
  std::ofstream(path) << script;
  return std::system(
      (std::string(GAVEL_VENV_PYTHON) + " " + path + " " + arguments).c_str());
}

constexpr char kImport[] =
    "from tensorboard.backend.event_processing.event_accumulator import "
    "EventAccumulator\n";

TEST(EventFile, IsReadByTensorBoard) {
  if (access(GAVEL_VENV_PYTHON, X_OK) != 0 ||
      RunPython(kImport, "2>/dev/null") != 0) {
    GTEST_SKIP() << "no Python with tensorboard at " << GAVEL_VENV_PYTHON
                 << "; ./gavel-dev test installs it";
  }
  TemporaryFolder folder;
  {
    ASSERT_OK_AND_ASSIGN(auto events, EventFile::Open(folder.path(), 0));
    for (int step = 0; step < 10; ++step) {
      ASSERT_OK(events->AddScalar("loss", step, 1.0 / (1 + step)));
    }
  }
  {  // restarted from step 6: what was said of 6 to 9 is void
    ASSERT_OK_AND_ASSIGN(auto events, EventFile::Open(folder.path(), 6));
    ASSERT_OK(events->AddScalar("loss", 6, 100));
    ASSERT_OK(events->AddScalar("gavel/pauses", 6, 1));
  }
  const std::string script = std::string(kImport) + R"(
import sys
events = EventAccumulator(sys.argv[1])
events.Reload()
tags = events.Tags()
assert sorted(tags["scalars"]) == ["gavel/pauses", "loss"], tags
loss = events.Scalars("loss")
assert [one.step for one in loss] == [0, 1, 2, 3, 4, 5, 6], loss
assert loss[1].value == 0.5 and loss[6].value == 100, loss
assert loss[0].wall_time > 1.6e9, loss
)";
  EXPECT_EQ(RunPython(script, folder.path()), 0);
}

}  // namespace
}  // namespace gavel::internal
