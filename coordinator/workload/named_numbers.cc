#include "coordinator/workload/named_numbers.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "coordinator/workload/text_lines.h"
#include "core/text.h"

namespace gavel {

absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseNamedNumbers(
    std::string_view text, const NumberRange& range, std::string_view example) {
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<TextField> parts;
  SplitFields(text, ',', parts);
  for (const TextField& part : parts) {
    const auto refusal = [&part](std::string_view what) {
      return absl::InvalidArgumentError(StrCat(QuoteToml(part.text), what));
    };
    const size_t equals = part.text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return refusal(StrCat(" is not NAME=NUMBER; write e.g. ", example));
    }
    const std::string name(part.text.substr(0, equals));
    const auto value = ParseNumber(part.text.substr(equals + 1));
    if (!value.has_value() || !IsWithin(*value, range)) {
      return refusal(StrCat(" has no good number; write ", Describe(range),
                            " behind \"", name, "=\""));
    }
    if (std::any_of(numbers.begin(), numbers.end(),
                    [&](const auto& other) { return other.first == name; })) {
      return refusal(" comes after another of that name; remove one");
    }
    numbers.emplace_back(name, *value);
  }
  return numbers;
}

}  // namespace gavel
