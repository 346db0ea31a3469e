#include "core/error_line.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/messages.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::array<std::string_view, 14> kWordsOfErrors = {
    "error",     "exception", "what()",    "fatal",         "failed",
    "failure",   "abort",     "cannot",    "can't",         "no such file",
    "not found", "denied",    "assertion", "out of memory",
};

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Returns the number of bytes of the UTF-8 character at the start of `text`; 0
// if there is none. Overlong forms and surrogates are not characters.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong =
      (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool outside =
      (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : size;
}

// Returns the number of bytes of the terminal escape sequence at the start of
// `text`: ESC [ ... letter, ESC ] ... BEL, or ESC and one more byte.
size_t EscapeBytes(std::string_view text) {
  if (text.size() < 2) return text.size();
  size_t end = 2;
  if (text[1] == '[') {
    while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
    return std::min(end + 1, text.size());
  }
  if (text[1] == ']') {
    while (end < text.size() && text[end] != '\a' && text[end] != '\x1b') ++end;
    return std::min(end + 1, text.size());
  }
  return end;
}

// Returns whether the character is a C1 control or a mark that changes the
// direction of text. Both may change what a reader of the line sees.
bool Misleads(std::string_view character) {
  return (character.size() == 2 && character[0] == '\xC2' &&
          static_cast<uint8_t>(character[1]) < 0xA0) ||
         (character.size() == 3 && character[0] == '\xE2' &&
          ((character[1] == '\x80' &&
            static_cast<uint8_t>(character[2]) >= 0xA8 &&
            static_cast<uint8_t>(character[2]) <= 0xAE) ||
           (character[1] == '\x81' &&
            static_cast<uint8_t>(character[2]) >= 0xA6 &&
            static_cast<uint8_t>(character[2]) <= 0xA9)));
}

bool SpeaksOfError(std::string_view line) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(line));
  return std::ranges::any_of(kWordsOfErrors, [&](std::string_view word) {
    return absl::StrContains(lower, ToAbsl(word));
  });
}

// Returns whether the line belongs to a stack trace of LibTorch or gdb. A
// function in a trace may have any name, including one with a word for an
// error.
bool IsFrame(std::string_view line) {
  return line.starts_with("frame #") || line.starts_with("#") ||
         line.starts_with("Exception raised from");
}

}  // namespace

std::string PrintableLine(std::string_view text, size_t characters_max) {
  std::string line;
  size_t characters = 0;
  for (size_t at = 0; at < text.size() && characters < characters_max;) {
    const std::string_view rest = text.substr(at);
    const size_t size = CharacterBytes(rest);
    if (rest[0] == '\x1b') {
      at += EscapeBytes(rest);
      continue;
    }
    at += std::max<size_t>(size, 1);
    if (size == 1 && (rest[0] < ' ' || rest[0] == '\x7f') && rest[0] != '\t') {
      continue;
    }
    if (size > 1 && Misleads(rest.substr(0, size))) continue;
    if (line.empty() && IsBlank(rest[0])) continue;
    if (size == 0) {
      line += '?';
    } else if (rest[0] == '\t') {
      line += ' ';
    } else {
      line += rest.substr(0, size);
    }
    ++characters;
  }
  while (!line.empty() && IsBlank(line.back())) line.pop_back();
  return line;
}

std::string TakeVisible(std::string* output, bool all) {
  constexpr size_t kCharacterBytesMax = 4;
  const std::string_view text = *output;
  std::string visible;
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    const auto first = static_cast<uint8_t>(rest[0]);
    const size_t size = CharacterBytes(rest);
    // The rest of the character may come with the next output.
    const bool cut = size == 0 && first >= 0xC2 &&
                     rest.size() < kCharacterBytesMax &&
                     std::ranges::all_of(rest.substr(1), [](char c) {
                       return (static_cast<uint8_t>(c) & 0xC0) == 0x80;
                     });
    if (cut && !all) break;
    const bool control = first < ' ' && first != '\n' && first != '\t';
    const bool plain = size > 0 && !control && first != 0x7f &&
                       !Misleads(rest.substr(0, size));
    const std::string_view bytes = rest.substr(0, std::max<size_t>(size, 1));
    at += bytes.size();
    if (plain) {
      visible += bytes;
      continue;
    }
    for (const char byte : bytes) {
      absl::StrAppendFormat(&visible, "\\x%02x", static_cast<uint8_t>(byte));
    }
  }
  output->erase(0, at);
  return visible;
}

std::string LastErrorLine(std::string_view output) {
  std::string last;
  std::string last_of_error;
  for (const absl::string_view piece :
       absl::StrSplit(ToAbsl(output), absl::ByAnyChar("\r\n"))) {
    std::string line = PrintableLine(ToStd(piece), kErrorLineCharactersMax);
    if (line.empty() || IsFrame(line)) continue;
    if (SpeaksOfError(line)) last_of_error = line;
    last = std::move(line);
  }
  return last_of_error.empty() ? last : last_of_error;
}

}  // namespace gavel
