#include "coordinator/workload/file_keys.h"

#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "core/text.h"

namespace gavel {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::max();
constexpr double kAllDigitsMax = 1e9;

// Whole numbers below a thousand million with all of their digits.
std::string WithAllDigits(double value) {
  if (std::abs(value) < kAllDigitsMax && value == std::floor(value)) {
    return StrCat(static_cast<int64_t>(value));
  }
  return StrCat(value);
}

// In the order of KeyKind.
constexpr std::array<std::string_view, 11> kKindNames = {
    "string", "array of strings",  "name",    "string", "size",  "integer",
    "number", "number of seconds", "boolean", "table",  "tables"};

std::string AllowedBy(const FileKey& key) {
  if (!key.values.empty()) return std::string(key.values);
  switch (key.kind) {
    case KeyKind::kName:
      return "1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`";
    case KeyKind::kChoice:
      return JoinChoices(key, "`");
    case KeyKind::kSize:
      return "a number with B, KiB, MiB, GiB or TiB, at most 1024 TiB";
    case KeyKind::kDuration:
      return "or a string with d, h, m and s, such as `\"1h30m\"`";
    case KeyKind::kBoolean:
      return "`true` or `false`";
    default:
      return "";
  }
}

std::string DefaultOf(const FileKey& key) {
  if (key.required) return "required";
  if (key.default_value.empty()) return std::string(key.otherwise);
  return StrCat("`", key.default_value, "`");
}

// An example of a key that users name has the name in it.
std::string ExampleOf(const FileKey& key) {
  if (key.any_name) return std::string(key.example);
  return StrCat(key.name, " = ", key.example);
}

}  // namespace

bool IsWithin(double value, const NumberRange& range) {
  const bool above = range.above_min ? value > range.min : value >= range.min;
  return above && value <= range.max;
}

std::string DescribeRange(const NumberRange& range) {
  std::string text =
      StrCat(range.above_min ? "above " : "from ", WithAllDigits(range.min));
  if (range.max != kUnlimited) {
    StrAppend(&text, " to ", WithAllDigits(range.max));
  } else if (!range.above_min) {
    StrAppend(&text, " on");
  }
  return text;
}

std::string Describe(const NumberRange& range) {
  return StrCat("a number ", DescribeRange(range));
}

std::string JoinChoices(const FileKey& key, std::string_view quote) {
  std::string text;
  for (size_t i = 0; i < key.choices.size(); ++i) {
    const bool is_last = i + 1 == key.choices.size();
    if (i > 0) text += is_last ? " or " : ", ";
    StrAppend(&text, quote, key.choices[i], quote);
  }
  return text;
}

std::span<const FileKey> KeysOf(std::span<const FileTable> tables,
                                std::string_view heading) {
  for (const FileTable& table : tables) {
    if (table.heading == heading) return table.keys;
  }
  assert(false);
  return {};
}

std::string DescribeKind(const FileKey& key) {
  std::string text(kKindNames[static_cast<size_t>(key.kind)]);
  const bool has_range = key.kind == KeyKind::kInteger ||
                         key.kind == KeyKind::kNumber ||
                         key.kind == KeyKind::kDuration;
  if (has_range) StrAppend(&text, ", ", DescribeRange(key.range));
  if (!AllowedBy(key).empty()) StrAppend(&text, ": ", AllowedBy(key));
  return text;
}

std::string FormatFileTables(std::span<const FileTable> tables) {
  std::string text;
  for (const FileTable& table : tables) {
    if (!table.heading.empty()) {
      StrAppend(&text, "### `", table.heading, "`\n\n");
    }
    StrAppend(&text, table.meaning,
              "\n\n| key | type and range | default | example | meaning |\n"
              "|---|---|---|---|---|\n");
    for (const FileKey& key : table.keys) {
      StrAppend(&text, "| `", key.name, "` | ", DescribeKind(key), " | ",
                DefaultOf(key), " | `", ExampleOf(key), "` | ", key.meaning,
                " |\n");
    }
    StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace gavel
