#include "core/locality.h"

#include <algorithm>
#include <array>

#include "core/text.h"

namespace gavel {
namespace {

// Both by the value of the enum.
constexpr std::array<std::string_view, kLocalities> kLocalityNames = {
    "group", "server", "rack", "cluster"};
constexpr std::array<std::string_view, kLocalities> kSuffixes = {
    "@group", "", "@rack", "_unconsolidated"};

}  // namespace

std::string_view LocalityName(Locality level) {
  return kLocalityNames[static_cast<size_t>(level)];
}

std::optional<Locality> FindLocality(std::string_view name) {
  const auto found = std::ranges::find(kLocalityNames, name);
  if (found == kLocalityNames.end()) return std::nullopt;
  return kAllLocalities[found - kLocalityNames.begin()];
}

std::string TypeNameAt(std::string_view type, Locality level) {
  return StrCat(type, kSuffixes[static_cast<size_t>(level)]);
}

std::optional<TypeAt> SplitTypeName(std::string_view name) {
  for (const Locality level : kAllLocalities) {
    const std::string_view suffix = kSuffixes[static_cast<size_t>(level)];
    if (suffix.empty() || !name.ends_with(suffix)) continue;
    const std::string_view type = name.substr(0, name.size() - suffix.size());
    if (!type.empty() && type.find('@') == std::string_view::npos)
      return TypeAt{type, level};
  }
  if (name.find('@') != std::string_view::npos) return std::nullopt;
  return TypeAt{name, Locality::kServer};
}

}  // namespace gavel
