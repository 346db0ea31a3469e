#include "coordinator/workload/job_array.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "coordinator/workload/toml_reader.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr char kRemedy[] = "write indices as 0-99, 0-9,20 or 0-100:10";
constexpr char kIndexVariable[] = "GAVEL_ARRAY_INDEX";
constexpr std::string_view kIndexName = "index";

// For messages, which have to fit a frame however long the text is.
std::string QuotedShort(std::string_view text) {
  constexpr size_t kCharactersMax = 64;
  return QuoteToml(PrintableLine(text, kCharactersMax));
}

constexpr size_t kIdentifierBytesMax = 64;

bool IsIdentifierPart(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Beyond all that may be written, and far from where sums overflow.
constexpr int64_t kTooLarge = 1'000'000'000'000;

// nullopt: `text` is no number of digits alone. At most kTooLarge.
std::optional<int64_t> NumberOf(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !std::ranges::all_of(text, digit)) return std::nullopt;
  int64_t value = 0;
  const auto end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ec != std::errc()) {
    return kTooLarge;
  }
  return std::min(value, kTooLarge);
}

// The part before the first `at`, which is taken from `text`; all of it where
// there is none.
std::string_view TakeUntil(std::string_view& text, char at) {
  const size_t end = text.find(at);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

absl::Status TooMany(int64_t count) {
  return absl::InvalidArgumentError(
      StrCat("it has ", count, " elements or more; write ", kElementsMax,
             " at most, and further ones as an array of their own"));
}

// "7", "0-9" or "30-40:5" into `indices`.
absl::Status AddRange(std::string_view range, std::vector<int>* indices) {
  const auto wrong = [&](std::string_view why) {
    return absl::InvalidArgumentError(
        StrCat(QuotedShort(range), " ", why, "; ", kRemedy));
  };
  std::string_view rest = range;
  std::string_view bounds = TakeUntil(rest, ':');
  const bool stepped = bounds.size() < range.size();
  const std::optional<int64_t> step =
      stepped ? NumberOf(rest) : std::optional<int64_t>(1);
  const std::string_view whole = bounds;
  const std::optional<int64_t> first = NumberOf(TakeUntil(bounds, '-'));
  const bool one = bounds.empty() && whole.find('-') == std::string_view::npos;
  const std::optional<int64_t> last = one ? first : NumberOf(bounds);
  if (!first || !last || !step || (one && stepped)) {
    return wrong("is no index and no range of indices");
  }
  if (*step < 1) return wrong("has steps of 0");
  if (*step > kElementIndexMax) return wrong("has steps that are too large");
  if (*first > *last) return wrong("is an empty range");
  const int64_t count = (*last - *first) / *step + 1;
  const int64_t all = static_cast<int64_t>(indices->size()) + count;
  if (all > static_cast<int64_t>(kElementsMax)) return TooMany(all);
  if (*last > kElementIndexMax) {
    return absl::InvalidArgumentError(StrCat("index ", *last,
                                             " is too large; write ",
                                             kElementIndexMax, " at most"));
  }
  for (int64_t index = *first; index <= *last; index += *step) {
    indices->push_back(static_cast<int>(index));
  }
  return absl::OkStatus();
}

// NAME of a text that begins with {NAME}; empty: it does not. A name is short,
// so this looks at few characters, also where nothing closes the braces.
std::string_view NameInBraces(std::string_view text) {
  if (!text.starts_with('{')) return "";
  const std::string_view ahead = text.substr(1, kIdentifierBytesMax + 1);
  const auto close = static_cast<size_t>(
      std::ranges::find_if_not(ahead, IsIdentifierPart) - ahead.begin());
  const std::string_view name = ahead.substr(0, close);
  const bool closed = close < ahead.size() && ahead[close] == '}';
  return closed && IsIdentifier(name) ? name : "";
}

// The number of combinations, up to one more than kElementsMax.
size_t CombinationsOf(const JobSpec& spec) {
  size_t count = 1;
  for (const auto& [name, values] : spec.sweep) {
    if (values.empty()) return 0;
    count = std::min(count * values.size(), kElementsMax + 1);
  }
  return count;
}

// The element's value of each parameter, in the order of the sweep.
std::vector<std::string_view> ValuesOf(const JobSpec& spec, int index) {
  std::vector<std::string_view> chosen(spec.sweep.size());
  auto rest = static_cast<size_t>(index);
  for (size_t i = spec.sweep.size(); i-- > 0;) {
    const std::vector<std::string>& values = spec.sweep[i].second;
    chosen[i] = values[rest % values.size()];
    rest /= values.size();
  }
  return chosen;
}

std::string VariableOf(std::string_view parameter) {
  return StrCat(kSweepPrefix, ToStd(absl::AsciiStrToUpper(ToAbsl(parameter))));
}

absl::StatusOr<std::string> FillIn(
    const JobSpec& spec, std::string_view argument, int index,
    const std::vector<std::string_view>& values) {
  return FillBraces(
      argument, [&](std::string_view name) -> absl::StatusOr<std::string> {
        if (name == kIndexName) return StrCat(index);
        for (size_t i = 0; i < values.size(); ++i) {
          if (spec.sweep[i].first == name) return std::string(values[i]);
        }
        return absl::InvalidArgumentError(
            StrCat("{", name,
                   "} in command names no parameter; write it in [sweep], "
                   "{index} for the index of an element, or {{",
                   name, "}} for the program to see {", name, "}"));
      });
}

// Counts the bytes of the programs and variables of elements, without making
// these.
class ElementBytes {
 public:
  explicit ElementBytes(const JobSpec& spec)
      : spec_(spec), uses_(spec.sweep.size(), 1) {
    for (const std::string& argument : spec.argv) {
      const absl::StatusOr<std::string> literal = FillBraces(
          argument, [&](std::string_view name) -> absl::StatusOr<std::string> {
            Use(name);
            return "";
          });
      if (literal.ok()) fixed_ += literal->size();
    }
    for (const auto& [name, value] : spec.environment) {
      fixed_ += name.size() + value.size();
    }
    fixed_ += std::string_view(kIndexVariable).size();
    for (const auto& [name, values] : spec.sweep) {
      fixed_ += VariableOf(name).size();
    }
  }

  size_t Of(int index) const {
    size_t bytes = fixed_ + index_uses_ * StrCat(index).size();
    const std::vector<std::string_view> values = ValuesOf(spec_, index);
    for (size_t i = 0; i < values.size(); ++i) {
      bytes += uses_[i] * values[i].size();
    }
    return bytes;
  }

 private:
  void Use(std::string_view name) {
    if (name == kIndexName) {
      ++index_uses_;
      return;
    }
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (spec_.sweep[i].first == name) ++uses_[i];
    }
  }

  const JobSpec& spec_;
  size_t fixed_ = 0;
  // How often an element has its index, and the value of each parameter; the
  // first time is as a variable.
  size_t index_uses_ = 1;
  std::vector<size_t> uses_;
};

absl::Status CheckParameters(const JobSpec& spec, std::string* key) {
  std::set<std::string> variables;
  for (const auto& [name, values] : spec.sweep) {
    *key = StrCat("sweep.", name);
    if (!IsIdentifier(name) || name == kIndexName) {
      return absl::InvalidArgumentError(
          StrCat("sweep: ", QuotedShort(name),
                 " can't name a parameter; write letters, digits and _, no "
                 "digit first, at most 64 (and not \"index\", the index of an "
                 "element)"));
    }
    if (values.empty()) {
      return absl::InvalidArgumentError(
          StrCat("sweep: ", name, " has no values; write one at least, or ",
                 "leave ", name, " out"));
    }
    if (!variables.insert(VariableOf(name)).second) {
      return absl::InvalidArgumentError(
          StrCat("sweep: two parameters have the variable ", VariableOf(name),
                 "; give them names that differ by more than capitals"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVariables(const JobSpec& spec, std::string* key) {
  for (const auto& [name, value] : spec.environment) {
    *key = StrCat("environment.", name);
    if (name != kIndexVariable && !name.starts_with(kSweepPrefix)) continue;
    return absl::InvalidArgumentError(
        StrCat("[environment] can't set ", name,
               ", which each element has of its own; leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseIndices(std::string_view text) {
  std::vector<int> indices;
  if (text.empty()) {
    return absl::InvalidArgumentError(StrCat("it names no element; ", kRemedy));
  }
  while (true) {
    const bool more = text.find(',') != std::string_view::npos;
    GAVEL_RETURN_IF_ERROR(AddRange(TakeUntil(text, ','), &indices));
    if (!more) break;
  }
  std::ranges::sort(indices);
  const auto twice = std::ranges::adjacent_find(indices);
  if (twice == indices.end()) return indices;
  return absl::InvalidArgumentError(
      StrCat("index ", *twice, " is there twice; name each element once"));
}

std::string FormatIndices(std::span<const int> indices) {
  std::string text;
  for (size_t i = 0; i < indices.size();) {
    size_t last = i;
    const int step = i + 1 < indices.size() ? indices[i + 1] - indices[i] : 1;
    while (last + 1 < indices.size() &&
           indices[last + 1] - indices[last] == step) {
      ++last;
    }
    // Two indices that do not follow each other are no range.
    if (step > 1 && last == i + 1) last = i;
    StrAppend(&text, text.empty() ? "" : ",", indices[i]);
    if (last > i) StrAppend(&text, "-", indices[last]);
    if (last > i && step > 1) StrAppend(&text, ":", step);
    i = last + 1;
  }
  return text;
}

absl::StatusOr<ArrayText> ParseArray(std::string_view text) {
  ArrayText array;
  const size_t percent = text.find('%');
  GAVEL_ASSIGN_OR_RETURN(array.indices, ParseIndices(text.substr(0, percent)));
  if (percent == std::string_view::npos) return array;
  const std::optional<int64_t> at_once = NumberOf(text.substr(percent + 1));
  if (!at_once || *at_once < 1 ||
      *at_once > static_cast<int64_t>(kElementsMax)) {
    return absl::InvalidArgumentError(
        StrCat(QuotedShort(text.substr(percent)),
               " does not say how many elements may run at once; write % and a "
               "number from 1 to ",
               kElementsMax, ", or leave it out"));
  }
  array.at_once = static_cast<int>(*at_once);
  return array;
}

std::vector<int> IndicesOf(const JobSpec& spec) {
  if (!spec.array.empty()) {
    absl::StatusOr<ArrayText> array = ParseArray(spec.array);
    return array.ok() ? std::move(array->indices) : std::vector<int>();
  }
  if (spec.sweep.empty()) return {};
  const size_t count = CombinationsOf(spec);
  if (count > kElementsMax) return {};
  std::vector<int> indices(count);
  for (size_t i = 0; i < count; ++i) indices[i] = static_cast<int>(i);
  return indices;
}

int AtOnceOf(const JobSpec& spec) {
  if (spec.array.empty()) return spec.at_once;
  const absl::StatusOr<ArrayText> array = ParseArray(spec.array);
  return array.ok() ? array->at_once : 0;
}

JobSpec ElementIdentity(const JobSpec& spec, int index) {
  JobSpec element;
  element.owner = spec.owner;
  element.name = StrCat(spec.name, "_", index);
  if (!spec.checkpoint_directory.empty()) {
    element.checkpoint_directory =
        StrCat(spec.checkpoint_directory, "_", index);
  }
  return element;
}

std::optional<ElementId> ParseElementId(std::string_view text) {
  const std::string_view whole = text;
  const std::optional<int64_t> array = NumberOf(TakeUntil(text, '_'));
  if (!array || text.empty() || whole.size() == text.size()) {
    return std::nullopt;
  }
  const std::optional<int64_t> index = NumberOf(text);
  if (!index || *index > kElementIndexMax) return std::nullopt;
  return ElementId{static_cast<uint64_t>(*array), static_cast<int>(*index)};
}

std::string_view ArrayNameOf(std::string_view element_name) {
  return element_name.substr(0, element_name.rfind('_'));
}

JobSpec ElementSpec(const JobSpec& spec, int index) {
  JobSpec element = spec;
  element.array.clear();
  element.sweep.clear();
  element.at_once = 0;
  JobSpec identity = ElementIdentity(spec, index);
  element.name = std::move(identity.name);
  element.checkpoint_directory = std::move(identity.checkpoint_directory);
  for (const std::string& array : spec.after_by_index) {
    element.after_success.push_back(StrCat(array, "_", index));
  }
  element.after_by_index.clear();
  element.workload = spec.workload.empty() ? spec.Workload() : spec.workload;
  if (spec.app.empty()) element.app = spec.name;
  const std::vector<std::string_view> values = ValuesOf(spec, index);
  for (std::string& argument : element.argv) {
    absl::StatusOr<std::string> filled = FillIn(spec, argument, index, values);
    if (filled.ok()) argument = *std::move(filled);
  }
  element.environment.emplace_back(kIndexVariable, StrCat(index));
  for (size_t i = 0; i < values.size(); ++i) {
    element.environment.emplace_back(VariableOf(spec.sweep[i].first),
                                     values[i]);
  }
  std::ranges::sort(element.environment);
  return element;
}

absl::Status CheckArray(const JobSpec& spec, std::string* key) {
  *key = "at_once";
  if (!HasElements(spec)) {
    if (spec.at_once == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "at_once is of a job with [sweep], and there is none; leave it out");
  }
  const std::string of_elements = spec.array.empty() ? "sweep" : "array";
  if (!spec.array.empty() && !spec.sweep.empty()) {
    *key = of_elements;
    return absl::InvalidArgumentError(
        "it has both array and [sweep]; leave one of them out");
  }
  if (!spec.array.empty() && spec.at_once > 0) {
    return absl::InvalidArgumentError(
        StrCat("at_once is of a job with [sweep]; write array = ",
               QuoteToml(StrCat("0-99%", spec.at_once)), " instead"));
  }
  *key = of_elements;
  if (!spec.array.empty()) {
    const absl::Status status = ParseArray(spec.array).status();
    if (!status.ok()) {
      return {status.code(), ToAbsl(StrCat("array ", QuotedShort(spec.array),
                                           ": ", ToStd(status.message())))};
    }
  }
  GAVEL_RETURN_IF_ERROR(CheckParameters(spec, key));
  *key = of_elements;
  if (const size_t count = CombinationsOf(spec); count > kElementsMax) {
    return absl::InvalidArgumentError(
        StrCat("sweep: it has more than ", kElementsMax,
               " combinations of values; write fewer values"));
  }
  GAVEL_RETURN_IF_ERROR(CheckVariables(spec, key));
  *key = "command";
  const std::vector<int> indices = IndicesOf(spec);
  const std::vector<std::string_view> values = ValuesOf(spec, indices.front());
  for (const std::string& argument : spec.argv) {
    GAVEL_RETURN_IF_ERROR(
        FillIn(spec, argument, indices.front(), values).status());
  }
  *key = "name";
  // The last index has the most digits.
  const std::string longest = ElementIdentity(spec, indices.back()).name;
  if (!IsValidName(longest)) {
    return absl::InvalidArgumentError(
        StrCat("name: the element ", longest,
               " would have a name of more than 64 characters; write a shorter "
               "one"));
  }
  *key = of_elements;
  size_t bytes = 0;
  const ElementBytes bytes_of(spec);
  for (const int index : indices) {
    const size_t own = bytes_of.Of(index);
    bytes += own;
    if (own > kJobSpecBytesMax) {
      return absl::InvalidArgumentError(
          StrCat("the command and environment of element ", index,
                 " have more than ", kJobSpecBytesMax, " bytes; shorten them"));
    }
    if (bytes > kArrayBytesMax) {
      return absl::InvalidArgumentError(StrCat(
          "the commands and environments of all elements have more than ",
          kArrayBytesMax, " bytes; shorten them, or write fewer elements"));
    }
  }
  return absl::OkStatus();
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && name.size() <= kIdentifierBytesMax &&
         !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
         std::ranges::all_of(name, IsIdentifierPart);
}

absl::StatusOr<std::string> FillBraces(
    std::string_view text,
    const std::function<absl::StatusOr<std::string>(std::string_view name)>&
        value_of) {
  std::string filled;
  while (true) {
    const size_t open = text.find('{');
    filled += text.substr(0, open);
    if (open == std::string_view::npos) return filled;
    const bool of_shell = open > 0 && text[open - 1] == '$';
    text.remove_prefix(open);
    std::string_view name = NameInBraces(text);
    if (!name.empty() && !of_shell) {
      GAVEL_ASSIGN_OR_RETURN(const std::string value, value_of(name));
      filled += value;
      text.remove_prefix(name.size() + 2);
      continue;
    }
    filled += '{';
    text.remove_prefix(1);
    name = NameInBraces(text);
    if (name.empty() || text.substr(name.size() + 2, 1) != "}") continue;
    StrAppend(&filled, name, "}");
    text.remove_prefix(name.size() + 3);
  }
}

}  // namespace gavel
