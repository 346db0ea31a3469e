#include "coordinator/workload/toml_reader.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/workload/job_spec.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel {
namespace {

// A value may be of another source than the rest of the table: of a flag, whose
// name is the source and which has no lines.
absl::Status ErrorAt(std::string_view source, const toml::source_region& place,
                     std::string_view what) {
  if (place.path != nullptr) source = *place.path;
  if (source.starts_with("--")) {
    return absl::InvalidArgumentError(StrCat(source, ": ", what));
  }
  return absl::InvalidArgumentError(StrCat(source, ":", place.begin.line, ":",
                                           place.begin.column, ": ", what));
}

std::string_view TypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

// "64GiB", "1.5 TiB". nullopt: no size.
std::optional<uint64_t> ParseBytes(std::string_view text) {
  // 8 EiB would not be exact any more.
  constexpr double kBytesMax = 1024.0 * 1024 * 1024 * 1024 * 1024;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"KiB", 1024.0},
      {"MiB", 1024.0 * 1024},
      {"GiB", 1024.0 * 1024 * 1024},
      {"TiB", 1024.0 * 1024 * 1024 * 1024},
      {"B", 1.0}};
  for (const auto& [unit, bytes] : kUnits) {
    if (!text.ends_with(unit)) continue;
    double number = 0;
    text.remove_suffix(unit.size());
    if (!absl::SimpleAtod(ToAbsl(text), &number)) return std::nullopt;
    if (!(number > 0 && number * bytes <= kBytesMax)) return std::nullopt;
    return static_cast<uint64_t>(number * bytes);
  }
  return std::nullopt;
}

bool HasKey(std::span<const FileKey> keys, std::string_view name) {
  return std::ranges::any_of(keys, [name](const FileKey& key) {
    return !key.any_name && key.name == name;
  });
}

// The table of `key`: of several the last one before `heading`, which the user
// most likely meant. Null: none has it.
const FileTable* OwnerOf(std::string_view key,
                         std::span<const FileTable> tables,
                         std::string_view heading) {
  const FileTable* owner = nullptr;
  bool before = true;
  for (const FileTable& table : tables) {
    if (table.heading == heading) {
      before = false;
    } else if (HasKey(table.keys, key) && (before || owner == nullptr)) {
      owner = &table;
    }
  }
  return owner;
}

}  // namespace

absl::StatusOr<toml::table> ParseToml(std::string_view text,
                                      std::string_view source,
                                      size_t bytes_max) {
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(StrCat(source, ":1:1: ", text.size(),
                                             " bytes exceed the ", bytes_max,
                                             " allowed; shorten the file"));
  }
  try {  // the one wrapper around toml++
    toml::parse_result result = toml::parse(text, source);
    if (result) return std::move(result).table();
    const toml::parse_error& error = result.error();
    return ErrorAt(source, error.source(),
                   StrCat("not TOML: ", error.description(),
                          "; correct it here or on the line before"));
  } catch (const std::exception&) {
    return absl::InvalidArgumentError(
        StrCat(source, ":1:1: not TOML; check the brackets and quotes"));
  }
}

TomlReader::TomlReader(const toml::table& table, std::string_view source,
                       std::initializer_list<std::string_view> known,
                       absl::Status& status)
    : TomlReader(table, source, status) {
  RefuseUnknownKeys(known);
}

TomlReader::TomlReader(const toml::table& table, std::string_view source,
                       std::span<const FileKey> keys, absl::Status& status)
    : table_(table), source_(source), status_(status), keys_(keys) {
  CheckKeys();
}

TomlReader::TomlReader(const toml::table& table, std::string_view source,
                       std::span<const FileTable> tables,
                       std::string_view heading, absl::Status& status)
    : table_(table),
      source_(source),
      status_(status),
      keys_(KeysOf(tables, heading)) {
  RefuseKeysOfOthers(tables, heading);
  CheckKeys();
}

TomlReader::TomlReader(const toml::table& table, std::string_view source,
                       absl::Status& status)
    : table_(table), source_(source), status_(status) {}

void TomlReader::RefuseUnknownKeys(const std::vector<std::string_view>& known) {
  for (const auto& [key, value] : table_) {
    if (std::count(known.begin(), known.end(), key.str()) > 0) continue;
    const std::string_view closest = ClosestWord(key.str(), known);
    const std::string remedy =
        closest.empty()
            ? StrCat("the keys here are ",
                     absl::StrJoin(known, ", ",
                                   [](std::string* out, std::string_view word) {
                                     out->append(word);
                                   }))
            : StrCat("did you mean \"", closest, "\"?");
    FailAt(key.source(),
           StrCat("unknown key ", QuoteToml(key.str()), "; ", remedy));
  }
}

void TomlReader::CheckKeys() {
  if (!keys_.empty() && keys_[0].any_name) return;
  std::vector<std::string_view> known;
  for (const FileKey& key : keys_) known.push_back(key.name);
  RefuseUnknownKeys(known);
  for (const FileKey& key : keys_) {
    if (key.required) Require(key.name, StrCat(key.name, " = ", key.example));
  }
}

void TomlReader::RefuseKeysOfOthers(std::span<const FileTable> tables,
                                    std::string_view heading) {
  const bool any_name = keys_[0].any_name;
  if (heading.empty() || (any_name && table_.is_inline())) return;
  for (const auto& [key, value] : table_) {
    const std::string_view name = key.str();
    const FileTable* const owner = OwnerOf(name, tables, heading);
    if (owner == nullptr || HasKey(keys_, name)) continue;
    std::string what = owner->heading.empty()
                           ? StrCat(QuoteToml(name), " belongs above ", heading)
                           : StrCat(QuoteToml(name), " belongs to ",
                                    owner->heading, ", not to ", heading);
    if (any_name) {
      const size_t begin = heading.find_last_of("[.") + 1;
      const std::string_view bare =
          heading.substr(begin, heading.find(']') - begin);
      StrAppend(&what, "; move it there, or write ", bare, " = { ", name,
                " = ... } for a ", keys_[0].name, " that is called so");
    } else {
      StrAppend(&what, "; move it there");
    }
    FailAt(key.source(), what);
  }
}

bool TomlReader::CheckString(std::string_view key, const toml::node& node) {
  if (!node.is_string()) {
    const auto row = std::ranges::find_if(keys_, [&](const FileKey& one) {
      return !one.any_name && one.name == key;
    });
    WrongType(key, node,
              row == keys_.end() || row->example.empty()
                  ? "a string"
                  : StrCat("a string such as ", row->example));
    return false;
  }
  if (node.as_string()->get().find('\0') != std::string::npos) {
    FailAt(node.source(), StrCat(key, " contains a NUL; remove it"));
    return false;
  }
  return true;
}

bool TomlReader::Read(std::string_view key, std::string& out) {
  const toml::node* node = table_.get(key);
  if (node == nullptr || !CheckString(key, *node)) return false;
  out = node->as_string()->get();
  return true;
}

template <class T>
auto TomlReader::Value(std::string_view key, std::string_view expected) {
  const toml::node* node = table_.get(key);
  if (node != nullptr && !node->is<T>()) WrongType(key, *node, expected);
  return node == nullptr ? nullptr : node->as<T>();
}

bool TomlReader::Read(std::string_view key, std::vector<std::string>& out) {
  const auto* array = Value<toml::array>(key, "an array of strings");
  if (array == nullptr) return false;
  std::vector<std::string> values;
  for (const toml::node& element : *array) {
    if (!CheckString(StrCat("element ", values.size() + 1, " of ", key),
                     element)) {
      return false;
    }
    values.push_back(element.as_string()->get());
  }
  out = std::move(values);
  return true;
}

bool TomlReader::ReadScalars(std::string_view key,
                             std::vector<std::string>& out) {
  const auto* array =
      Value<toml::array>(key, "an array of strings, numbers and booleans");
  if (array == nullptr) return false;
  std::vector<std::string> values;
  for (const toml::node& element : *array) {
    if (const auto* number = element.as_floating_point()) {
      if (!std::isfinite(number->get())) {
        FailAt(element.source(),
               StrCat("element ", values.size() + 1, " of ", key,
                      " is not a finite number; write one, or a string such as "
                      "\"inf\""));
        return false;
      }
      std::array<char, 32> digits;
      const auto end = std::to_chars(
          digits.data(), digits.data() + digits.size(), number->get());
      values.emplace_back(digits.data(), end.ptr);
    } else if (const auto* whole = element.as_integer()) {
      values.push_back(StrCat(whole->get()));
    } else if (const auto* truth = element.as_boolean()) {
      values.emplace_back(truth->get() ? "true" : "false");
    } else if (CheckString(StrCat("element ", values.size() + 1, " of ", key),
                           element)) {
      values.push_back(element.as_string()->get());
    } else {
      return false;
    }
  }
  out = std::move(values);
  return true;
}

bool TomlReader::Read(std::string_view key, int64_t& out, int64_t min,
                      int64_t max) {
  const auto* found = Value<int64_t>(key, "an integer");
  if (found == nullptr) return false;
  const int64_t value = found->get();
  if (value < min || value > max) {
    Fail(key, StrCat(key, " is ", value, "; write an integer from ", min,
                     " to ", max));
    return false;
  }
  out = value;
  return true;
}

bool TomlReader::Read(std::string_view key, int& out, int min, int max) {
  int64_t value = out;
  if (!Read(key, value, int64_t{min}, int64_t{max})) return false;
  out = static_cast<int>(value);
  return true;
}

bool TomlReader::Read(std::string_view key, double& out,
                      const NumberRange& range) {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return false;
  if (!node->is_number()) {
    WrongType(key, *node, "a number");
    return false;
  }
  const double value = node->is_integer()
                           ? static_cast<double>(node->as_integer()->get())
                           : node->as_floating_point()->get();
  if (!IsWithin(value, range)) {
    Fail(key, StrCat(key, " is ", value, "; write ", Describe(range)));
    return false;
  }
  out = value;
  return true;
}

bool TomlReader::Read(std::string_view key, bool& out) {
  const auto* found = Value<bool>(key, "true or false");
  if (found == nullptr) return false;
  out = found->get();
  return true;
}

bool TomlReader::ReadName(std::string_view key, std::string& out) {
  std::string name;
  if (!Read(key, name)) return false;
  if (!IsValidName(name)) {
    Fail(key, StrCat(key, " is ", QuoteToml(name),
                     "; write 1 to 64 of the letters A-Z, a-z, 0-9, _ and -"));
    return false;
  }
  out = std::move(name);
  return true;
}

bool TomlReader::Read(const FileKey& row, std::string& out) {
  if (row.kind == KeyKind::kName) return ReadName(row.name, out);
  return Read(row.name, out);
}

bool TomlReader::Read(const FileKey& row, std::vector<std::string>& out) {
  return Read(row.name, out);
}

bool TomlReader::Read(const FileKey& row, int& out) {
  return Read(row.name, out, static_cast<int>(row.range.min),
              static_cast<int>(row.range.max));
}

bool TomlReader::Read(const FileKey& row, uint64_t& out) {
  if (row.kind == KeyKind::kSize) return ReadSize(row, out);
  assert(row.range.max == std::numeric_limits<double>::max());
  int64_t value = 0;
  if (!Read(row.name, value, 0, std::numeric_limits<int64_t>::max())) {
    return false;
  }
  out = static_cast<uint64_t>(value);
  return true;
}

bool TomlReader::Read(const FileKey& row, double& out) {
  const toml::node* const node = table_.get(row.name);
  const bool is_text = node != nullptr && node->is_string();
  if (row.kind != KeyKind::kDuration || !is_text) {
    return Read(row.name, out, row.range);
  }
  std::string text;
  if (!Read(row.name, text)) return false;
  const std::optional<double> seconds = ParseDuration(text);
  if (!seconds || !IsWithin(*seconds, row.range)) {
    Fail(row.name,
         StrCat(row.name, " is ", QuoteToml(text),
                "; write a number of seconds, ", DescribeRange(row.range),
                ", or a duration such as \"1h30m\" (d, h, m, s)"));
    return false;
  }
  out = *seconds;
  return true;
}

bool TomlReader::Read(const FileKey& row, std::optional<double>& out) {
  double value = 0;
  if (!Read(row, value)) return false;
  out = value;
  return true;
}

bool TomlReader::Read(const FileKey& row, bool& out) {
  if (row.kind == KeyKind::kBoolean) return Read(row.name, out);
  size_t choice = out ? 1 : 0;
  const bool was_read = ReadChoice(row, choice);
  out = choice != 0;
  return was_read;
}

bool TomlReader::ReadChoice(const FileKey& row, size_t& out) {
  std::string word;
  if (!Read(row.name, word)) return false;
  const auto found = std::ranges::find(row.choices, word);
  if (found == row.choices.end()) {
    Fail(row.name, StrCat(row.name, " is ", QuoteToml(word), "; write ",
                          row.remedy.empty() ? JoinChoices(row, "\"")
                                             : std::string(row.remedy)));
    return false;
  }
  out = static_cast<size_t>(found - row.choices.begin());
  return true;
}

bool TomlReader::ReadSize(const FileKey& row, uint64_t& out) {
  std::string text;
  if (!Read(row.name, text)) return false;
  const std::optional<uint64_t> bytes = ParseBytes(text);
  if (!bytes.has_value()) {
    Fail(row.name, StrCat(row.name, " is ", QuoteToml(text),
                          "; write a size such as \"64GiB\" (B, KiB, MiB, "
                          "GiB, TiB; at most 1024 TiB)"));
    return false;
  }
  out = *bytes;
  return true;
}

const toml::table* TomlReader::Table(std::string_view key) {
  return Value<toml::table>(key, StrCat("a table [", key, "]"));
}

std::vector<const toml::table*> TomlReader::Tables(std::string_view key) {
  std::vector<const toml::table*> tables;
  const toml::node* node = table_.get(key);
  if (node == nullptr) return tables;
  if (!node->is_array_of_tables()) {
    WrongType(key, *node, StrCat("tables, each as [[", key, "]]"));
    return tables;
  }
  for (const toml::node& element : *node->as_array()) {
    tables.push_back(element.as_table());
  }
  return tables;
}

std::vector<std::string> TomlReader::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : table_) keys.emplace_back(key.str());
  return keys;
}

void TomlReader::Require(std::string_view key, std::string_view example) {
  if (Has(key)) return;
  Fail(key, StrCat("there is no \"", key, "\"; add e.g. ", example));
}

void TomlReader::Fail(std::string_view key, std::string_view what) {
  const toml::node* node = table_.get(key);
  FailAt(node == nullptr ? table_.source() : node->source(), what);
}

void TomlReader::FailAt(const toml::source_region& place,
                        std::string_view what) {
  status_.Update(ErrorAt(source_, place, what));
}

void TomlReader::WrongType(std::string_view key, const toml::node& node,
                           std::string_view expected) {
  FailAt(node.source(),
         StrCat(key, " is ", TypeName(node), "; write ", expected));
}

void CheckScaleFactors(int min, int now, int max, TomlReader& reader) {
  if (min > now) {
    reader.Fail("scale_factor_min",
                StrCat("scale_factor_min ", min, " exceeds scale_factor ", now,
                       "; lower it, or raise scale_factor"));
  }
  if (max != 0 && max < now) {
    reader.Fail("scale_factor_max",
                StrCat("scale_factor_max ", max, " is below scale_factor ", now,
                       "; raise it, or lower scale_factor"));
  }
}

std::string_view ClosestWord(std::string_view word,
                             const std::vector<std::string_view>& words) {
  // One edit in two letters: "nmae" for "name", not "foo" for "app".
  constexpr size_t kLettersAnEdit = 2;
  std::string_view closest;
  size_t edits_min = word.size() / kLettersAnEdit;
  for (const std::string_view candidate : words) {
    const size_t edits = EditDistance(word, candidate);
    if (edits > edits_min || (edits == edits_min && !closest.empty())) continue;
    edits_min = edits;
    closest = candidate;
  }
  return closest;
}

std::string QuoteToml(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (c == '\n') {
      quoted += "\\n";
    } else if ((c >= 0 && c < 0x20) || c == 0x7f) {
      quoted += absl::StrFormat("\\u%04X", static_cast<int>(c));
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string ToToml(const FileKey&, const std::string& value) {
  return QuoteToml(value);
}

std::string ToToml(const FileKey&, const std::vector<std::string>& value) {
  const auto quote = [](std::string* out, const std::string& text) {
    *out += QuoteToml(text);
  };
  return StrCat("[", absl::StrJoin(value, ", ", quote), "]");
}

// The shortest digits that read back as the same number: as a float, since
// TOML's integers end at 64 bits.
std::string ToToml(const FileKey&, double value) {
  std::array<char, 32> buffer;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  const std::string digits(buffer.data(), result.ptr);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0"
                                                         : digits;
}

}  // namespace gavel
