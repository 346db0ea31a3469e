// Small files of ours, read and written whole. Stateless, thread-safe.
#ifndef GAVEL_RUNTIME_FILES_TEXT_FILE_H_
#define GAVEL_RUNTIME_FILES_TEXT_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gavel {

// Empty when it can't be read.
std::string ReadAll(const std::string& path);

// Puts `text` in the place of what is there, all or nothing, for this user
// alone, and on disk when it returns; "PATH.new" is used for it. Else what the
// system said, with the path.
absl::Status ReplaceFile(const std::string& path, std::string_view text);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_TEXT_FILE_H_
