// The keys that users may write into a file, one row per key. Job and cluster
// files are read and written by these rows (toml_reader.h), and docs/files.md
// lists them, so the parsers and the document always agree. A new key is a row
// in job_spec.cc or cluster_spec.cc and the member that the row names; then
// `gavel help --files > docs/files.md`.
#ifndef GAVEL_COORDINATOR_WORKLOAD_FILE_KEYS_H_
#define GAVEL_COORDINATOR_WORKLOAD_FILE_KEYS_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace gavel {

// The finite numbers that a key may take: from min on (or above it), to max.
struct NumberRange {
  double min = 0;
  bool above_min = false;
  double max = std::numeric_limits<double>::max();
};
inline constexpr NumberRange kPositive = {.above_min = true};
inline constexpr NumberRange kNotNegative = {};
// The shortest round and the shortest lease. The engine begins no lease shorter
// than 0.05 s, and rounding leaves less of a round of that length.
inline constexpr double kRoundDurationMin_s = 0.1;

bool IsWithin(double value, const NumberRange& range);  // false for NaN
// "above 0", "from 0 to 10"; the second with "a number" before it.
std::string DescribeRange(const NumberRange& range);
std::string Describe(const NumberRange& range);

enum class KeyKind : uint8_t {
  kText,
  kTexts,   // an array of strings
  kName,    // job_spec.h, IsValidName
  kChoice,  // one of FileKey::choices
  kSize,    // "64GiB"
  kInteger,
  kNumber,
  kDuration,  // a number of seconds, or "1h30m"
  kBoolean,
  kTable,   // [key]
  kTables,  // [[key]]
};

struct FileKey {
  std::string_view name = "";
  KeyKind kind = KeyKind::kText;
  NumberRange range = {};        // of integers and numbers
  std::string_view values = "";  // what texts may be, in words
  std::span<const std::string_view> choices = {};  // by the enum's values
  std::string_view remedy = "";  // the choices as an error lists them; or none
  bool required = false;         // missing: an error, with the example
  std::string_view default_value = "";  // in TOML; parsing it changes nothing
  std::string_view otherwise = "";      // what leaving it out means, in words
  std::string_view example = "";        // in TOML
  std::string_view meaning = "";
  // The one row of a table whose keys users choose: stands for all of them.
  bool any_name = false;
  // Another key of the table that means the same, and is the one written.
  std::string_view alias_of = "";
};

// One table of a file.
struct FileTable {
  std::string_view heading;  // "[[server.accelerator]]"; empty: top of the file
  std::string_view meaning;
  std::span<const FileKey> keys;
};

// In the order of the document. The spans live as long as the program.
std::span<const FileTable> JobFileTables();
std::span<const FileTable> ClusterFileTables();

// The choices of the key `visibility`, which is a bool: whether processes see
// the accelerator of their lease only.
inline constexpr std::string_view kVisibilities[] = {"all", "leased"};
inline constexpr std::string_view kVisibilityRemedy =
    "\"all\", or \"leased\" for processes that see the accelerator of their "
    "lease only";

// The choices of a key as `a, b or c`, with `quote` before and after each.
std::string JoinChoices(const FileKey& key, std::string_view quote);

// The rows of one table of them.
std::span<const FileKey> KeysOf(std::span<const FileTable> tables,
                                std::string_view heading);

// "integer, from 1 to 4096"; "one of a, b". For the document.
std::string DescribeKind(const FileKey& key);

// The tables as Markdown.
std::string FormatFileTables(std::span<const FileTable> tables);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_FILE_KEYS_H_
