// The rows of file_keys.h hold for the parsers: whatever the document says of a
// key is what happens.
#include "coordinator/workload/file_keys.h"

#include <limits>

#include "coordinator/workload/cluster_spec.h"
#include "coordinator/workload/job_spec.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

absl::Status ParseJob(const std::string& toml) {
  return ParseJobSpec(toml, "job.toml").status();
}

absl::Status ParseCluster(const std::string& toml) {
  return ParseClusterSpec(toml, "cluster.toml").status();
}

// "v100" of the example "v100 = 45.5".
std::string NameOf(const FileKey& key) {
  if (!key.any_name) return std::string(key.name);
  return std::string(key.example.substr(0, key.example.find(' ')));
}

std::string ValueOf(const FileKey& key) {
  if (!key.any_name) return std::string(key.example);
  return std::string(key.example.substr(key.example.find('=') + 2));
}

// A file with this line in the table, and all that it needs around it.
std::string FileWith(std::span<const FileTable> tables, const FileTable& table,
                     const FileKey& key, const std::string& value) {
  const auto required_of = [](std::span<const FileKey> keys,
                              std::string_view but) {
    std::string lines;
    for (const FileKey& one : keys) {
      if (!one.required || one.name == but) continue;
      StrAppend(&lines, one.name, " = ", one.example, "\n");
    }
    return lines;
  };
  std::string line = StrCat(NameOf(key), " = ", value, "\n");
  // Not of a CPU slot; a part of it.
  if (key.name == "exclusive") line += "device = \"cuda:0\"\n";
  if (key.name == "idle_limit") line += "class = \"interactive\"\n";
  if (key.name == "after_by_index") line += "array = \"0-9\"\n";
  if (key.name == "at_once") line += "[sweep]\nlr = [0.1, 0.01]\n";
  if (key.name == "context_bytes") line += "memory_bytes = \"141GiB\"\n";
  if (table.heading.empty()) return required_of(table.keys, key.name) + line;
  std::string file = required_of(KeysOf(tables, ""), "");
  if (table.heading == "[[server.accelerator]]") {
    StrAppend(&file, "[[server]]\nname = \"a\"\n");
  }
  return StrCat(file, table.heading, "\n", required_of(table.keys, key.name),
                line);
}

using Parser = std::function<absl::Status(const std::string&)>;
using KeyCheck =
    std::function<void(const FileKey&, const Parser& parse_with_value)>;

void ForEachKey(const KeyCheck& check) {
  const std::pair<std::span<const FileTable>, Parser> files[] = {
      {JobFileTables(), ParseJob}, {ClusterFileTables(), ParseCluster}};
  for (const auto& [tables, parse] : files) {
    for (const FileTable& table : tables) {
      for (const FileKey& key : table.keys) {
        SCOPED_TRACE(StrCat(table.heading, " ", key.name));
        check(key, [&](const std::string& value) {
          return parse(FileWith(tables, table, key, value));
        });
      }
    }
  }
}

TEST(FileKeys, EveryKeyIsReadAsItsKind) {
  ForEachKey([](const FileKey& key, const Parser& parse) {
    EXPECT_THAT(parse("2024-01-01"),
                IsInvalid(StrCat(NameOf(key), " is a date or time; write")));
  });
}

TEST(FileKeys, EveryExampleIsAccepted) {
  ForEachKey([](const FileKey& key, const Parser& parse) {
    EXPECT_THAT(parse(ValueOf(key)), IsOk());
  });
}

TEST(FileKeys, EveryRangeEndsWhereTheTableSays) {
  ForEachKey([](const FileKey& key, const Parser& parse) {
    const bool is_integer = key.kind == KeyKind::kInteger;
    const bool is_number =
        key.kind == KeyKind::kNumber || key.kind == KeyKind::kDuration;
    if (!is_integer && !is_number) return;
    const NumberRange& range = key.range;
    const std::string below =
        StrCat(range.above_min ? range.min : range.min - 1);
    EXPECT_THAT(parse(below), IsInvalid("; write a"));
    if (range.max == std::numeric_limits<double>::max()) return;
    EXPECT_THAT(parse(StrCat(static_cast<int64_t>(range.max) + 1)),
                IsInvalid("; write a"));
  });
}

TEST(FileKeys, EveryRowSaysWhatLeavingTheKeyOutMeans) {
  ForEachKey([](const FileKey& key, const Parser&) {
    const int ways = (key.required ? 1 : 0) +
                     (key.default_value.empty() ? 0 : 1) +
                     (key.otherwise.empty() ? 0 : 1);
    EXPECT_EQ(ways, 1);
    EXPECT_FALSE(key.meaning.empty());
  });
}

TEST(FileKeys, TheDefaultOfAJobsKeyChangesNothing) {
  constexpr char kLeast[] = "name = \"a\"\ncommand = [\"./train\"]\n";
  ASSERT_OK_AND_ASSIGN(const JobSpec least, ParseJobSpec(kLeast, "job.toml"));
  for (const FileKey& key : KeysOf(JobFileTables(), "")) {
    if (key.default_value.empty()) continue;
    ASSERT_OK_AND_ASSIGN(
        const JobSpec spec,
        ParseJobSpec(StrCat(kLeast, key.name, " = ", key.default_value),
                     "job.toml"));
    EXPECT_EQ(spec, least) << key.name;
  }
}

TEST(FileKeys, AJobsKeyReachesItsMemberAndIsWrittenAgain) {
  constexpr char kLeast[] = "name = \"a\"\ncommand = [\"./train\"]\n";
  ASSERT_OK_AND_ASSIGN(const JobSpec least, ParseJobSpec(kLeast, "job.toml"));
  const FileTable& top = JobFileTables()[0];
  for (const FileKey& key : top.keys) {
    SCOPED_TRACE(key.name);
    const std::string file =
        FileWith(JobFileTables(), top, key, std::string(key.example));
    ASSERT_OK_AND_ASSIGN(const JobSpec spec, ParseJobSpec(file, "job.toml"));
    JobSpec otherwise = least;
    if (key.name != "name") otherwise.name = spec.name;
    if (key.name != "command") otherwise.argv = spec.argv;
    EXPECT_EQ(spec == otherwise, key.example == key.default_value);
    ASSERT_OK_AND_ASSIGN(const JobSpec again,
                         ParseJobSpec(FormatJobSpec(spec), "again.toml"));
    EXPECT_EQ(again, spec);
  }
}

TEST(FileKeys, TheDefaultOfAClustersKeyChangesNothing) {
  for (const FileTable& table : ClusterFileTables()) {
    for (const FileKey& key : table.keys) {
      if (key.default_value.empty()) continue;
      const auto parse = [&](std::string_view value) {
        return *ParseClusterSpec(
            FileWith(ClusterFileTables(), table, key, std::string(value)),
            "cluster.toml");
      };
      // The line of the key, made a comment.
      const std::string with = FileWith(ClusterFileTables(), table, key, "");
      std::string without = with;
      without.insert(without.rfind(StrCat("\n", key.name, " =")) + 1, "# ");
      const absl::StatusOr<ClusterSpec> least =
          ParseClusterSpec(without, "cluster.toml");
      ASSERT_THAT(least, IsOk()) << without;
      const ClusterSpec spec = parse(key.default_value);
      EXPECT_EQ(spec.scheduling, least->scheduling) << key.name;
      EXPECT_EQ(spec.servers, least->servers) << key.name;
    }
  }
}

}  // namespace
}  // namespace gavel
