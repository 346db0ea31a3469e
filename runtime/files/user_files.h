// Reads and writes the files that the user names. Stateless, thread-safe.
#ifndef GAVEL_RUNTIME_FILES_USER_FILES_H_
#define GAVEL_RUNTIME_FILES_USER_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

// Errors name the file. NOT_FOUND: there is none; INVALID_ARGUMENT: longer than
// `bytes_max`, or no file.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max);
absl::Status WriteFile(const std::string& path, const std::string& text);
// With all of its parents; one that is there stays.
absl::Status MakeDirectory(const std::string& path);
// To be called before long work whose result WriteFile is to keep.
absl::Status CheckWritable(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_USER_FILES_H_
