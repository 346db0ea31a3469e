// Text functions that bridge std and Abseil, and how far two words differ.
// Debian builds Abseil with its own string_view, to which std::string_view does
// not convert. The tree uses this StrCat instead of absl::StrCat. Compiles also
// with an Abseil that uses std::string_view.
#ifndef GAVEL_CORE_TEXT_H_
#define GAVEL_CORE_TEXT_H_

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace gavel {

inline absl::string_view ToAbsl(std::string_view text) {
  return {text.data(), text.size()};
}

inline std::string_view ToStd(absl::string_view text) {
  return {text.data(), text.size()};
}

// Converts one argument of StrCat() below to a type that absl::StrCat takes.
template <class T>
decltype(auto) ToAlphaNum(const T& part) {
  if constexpr (std::same_as<T, std::string_view>) {
    return ToAbsl(part);
  } else {
    return (part);
  }
}

// absl::StrCat for numbers and text of all kinds.
template <class... T>
std::string StrCat(const T&... parts) {
  return absl::StrCat(ToAlphaNum(parts)...);
}

template <class... T>
void StrAppend(std::string* text, const T&... parts) {
  absl::StrAppend(text, ToAlphaNum(parts)...);
}

// The fewest insertions, deletions, replacements and swaps of neighbours that
// make one word of the other, where no letter is edited twice. Takes
// a.size() * b.size() steps and memory for b only, so a long text that a peer
// sends goes first.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace gavel

#endif  // GAVEL_CORE_TEXT_H_
