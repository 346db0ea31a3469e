#include "coordinator/engine/type_names.h"

#include <algorithm>
#include <bit>
#include <cctype>

#include "absl/strings/str_split.h"
#include "core/locality.h"
#include "core/text.h"

namespace gavel {
namespace {

// Subsets of more are not looked at: no product has as many.
constexpr size_t kPartsMax = 4;

bool IsMemory(std::string_view part) {
  return part.size() > 2 && part.ends_with("gb") &&
         std::ranges::all_of(part.substr(0, part.size() - 2), [](char c) {
           return std::isdigit(static_cast<unsigned char>(c)) != 0;
         });
}

bool MayGo(std::string_view part) {
  return part == "pcie" || part == "nvl" || part == "sxm" || IsMemory(part);
}

}  // namespace

std::vector<std::string> ShorterTypeNames(std::string_view type) {
  if (type.find('-') == std::string_view::npos) return {};
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(type), '-');
  std::vector<size_t> optional;  // the first part is the model
  for (size_t i = 1; i < parts.size(); ++i) {
    if (MayGo(parts[i]) && optional.size() < kPartsMax) optional.push_back(i);
  }
  std::vector<std::string> names;
  // By the number of parts that go; of as many, the front ones go first.
  for (int gone = 1; gone <= static_cast<int>(optional.size()); ++gone) {
    for (unsigned set = 1; set < 1U << optional.size(); ++set) {
      if (std::popcount(set) != gone) continue;
      std::string name = parts[0];
      for (size_t i = 1; i < parts.size(); ++i) {
        const auto at = std::ranges::find(optional, i) - optional.begin();
        const bool goes =
            static_cast<size_t>(at) < optional.size() && (set >> at & 1U) != 0;
        if (!goes) StrAppend(&name, "-", parts[i]);
      }
      names.push_back(std::move(name));
    }
  }
  return names;
}

std::vector<std::string> NamesOfType(std::string_view type,
                                     std::span<const std::string> types) {
  std::vector<std::string> names{std::string(type)};
  for (std::string& name : ShorterTypeNames(type)) {
    const bool anothers =
        std::ranges::any_of(types, [&](const std::string& other) {
          if (other == type) return false;
          const std::vector<std::string> shorter = ShorterTypeNames(other);
          return other == name ||
                 std::ranges::find(shorter, name) != shorter.end();
        });
    if (!anothers) names.push_back(std::move(name));
  }
  return names;
}

std::optional<size_t> FindColumn(const ThroughputTable& table,
                                 std::string_view type,
                                 std::span<const std::string> types) {
  const std::optional<size_t> own = table.FindType(type);
  if (own.has_value() || type.find('-') == std::string_view::npos) return own;
  for (const std::string& name : NamesOfType(type, types)) {
    const std::optional<size_t> found = table.FindType(name);
    if (found.has_value()) return found;
  }
  return std::nullopt;
}

void NameInFull(std::span<const std::string> types,
                std::map<std::string, double>* values) {
  if (values->empty()) return;
  for (const std::string& type : types) {
    if (type.find('-') == std::string::npos) continue;
    for (const Locality level : kAllLocalities) {
      for (const std::string& name : NamesOfType(type, types)) {
        const auto found = values->find(TypeNameAt(name, level));
        if (found == values->end()) continue;
        values->try_emplace(TypeNameAt(type, level), found->second);
        break;
      }
    }
  }
}

}  // namespace gavel
