// Lines of a program's output that are shown to people: made printable and
// short, and found where a program says why it failed. Agents take them from
// the end of a worker's output, the coordinator checks what an agent sent.
// Stateless, thread-safe.
#ifndef GAVEL_CORE_ERROR_LINE_H_
#define GAVEL_CORE_ERROR_LINE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/text.h"

namespace gavel {

// `text` as one line of UTF-8: without escape sequences and control
// characters, blanks at its ends removed, bytes that are no UTF-8 replaced by
// '?', cut after `characters_max` characters.
std::string PrintableLine(std::string_view text, size_t characters_max);

// Escapes `output` for a terminal: control characters except newline and tab,
// marks that turn the direction of text, and bytes that are no UTF-8 become
// "\x1b". Takes it from `output`, all of it or without a character that is cut
// at its end.
std::string TakeVisible(std::string* output, bool all);
inline std::string Visible(std::string text) {
  return TakeVisible(&text, true);
}

// The last line of `output` that speaks of an error, without the frames of a
// stack trace; where none does, the last that is not empty. Printable, of at
// most kErrorLineCharactersMax characters.
std::string LastErrorLine(std::string_view output);

// Texts by which agents and workers report why a worker ended
// (WorkerExited::launch_error, WorkerFinished::detail) and which the reader of
// the report tests to distinguish the cases.

// The coordinator ended the launch while the job's checkpoint was being
// fetched.
inline constexpr std::string_view kStoppedWhileFetching =
    "stopped while its checkpoint was fetched";

// Whether `detail` reports a lack of memory, in the words of LibTorch and the
// drivers: "CUDA out of memory. Tried to allocate …",
// "CUBLAS_STATUS_ALLOC_FAILED when calling …".
inline bool TellsOutOfMemory(std::string_view detail) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(detail));
  return absl::StrContains(lower, "out of memory") ||
         absl::StrContains(lower, "_status_alloc_failed");
}

}  // namespace gavel

#endif  // GAVEL_CORE_ERROR_LINE_H_
