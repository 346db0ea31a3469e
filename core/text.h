// Text between std and Abseil: Debian builds Abseil with a string_view of its
// own, which std::string_view does not convert to. Used everywhere instead of
// absl::StrCat; compiles with an Abseil that uses std::string_view, too.
#ifndef GAVEL_CORE_TEXT_H_
#define GAVEL_CORE_TEXT_H_

#include <concepts>
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

// What absl::StrCat takes, for one argument of StrCat() below.
template <class T>
decltype(auto) ToAlphaNum(const T& part) {
  if constexpr (std::same_as<T, std::string_view>) {
    return ToAbsl(part);
  } else {
    return (part);
  }
}

// absl::StrCat of numbers and text of all kinds.
template <class... T>
std::string StrCat(const T&... parts) {
  return absl::StrCat(ToAlphaNum(parts)...);
}

template <class... T>
void StrAppend(std::string* text, const T&... parts) {
  absl::StrAppend(text, ToAlphaNum(parts)...);
}

}  // namespace gavel

#endif  // GAVEL_CORE_TEXT_H_
