// Small files of ours, read and written whole. Stateless, thread-safe.
#ifndef GAVEL_RUNTIME_FILES_TEXT_FILE_H_
#define GAVEL_RUNTIME_FILES_TEXT_FILE_H_

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gavel {

// Empty when it can't be read.
std::string ReadAll(const std::string& path);

// The permissions of a file that others may read, as far as the umask allows.
inline constexpr mode_t kSharedMode = 0666;

// Puts `text` in the place of what is there, all or nothing, and on disk when
// it returns; "PATH.new" is used for it. `mode`: by default for this user
// alone. Else what the system said, with the path.
absl::Status ReplaceFile(const std::string& path, std::string_view text,
                         mode_t mode = 0600);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_TEXT_FILE_H_
