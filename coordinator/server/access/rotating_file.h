// A file of lines that is only ever appended to, of bounded size: PATH is
// written; when it is full it becomes PATH.1, that one PATH.2, and so on, and
// the last goes. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_ROTATING_FILE_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_ROTATING_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

namespace gavel {

struct RotationLimits {
  uint64_t file_bytes = uint64_t{16} << 20;
  int old_files = 15;  // beside the one that is written
};

class RotatingFile {
 public:
  // Creates the file, mode 0600; follows no link.
  static absl::StatusOr<RotatingFile> Open(const std::string& path,
                                           const RotationLimits& limits = {});

  // `line` is whole, with its end. One write, so that lines stay whole whoever
  // else appends. False: it could not be written.
  bool Append(std::string_view line);

 private:
  RotatingFile(std::string path, const RotationLimits& limits, Descriptor file,
               uint64_t size)
      : path_(std::move(path)),
        limits_(limits),
        file_(std::move(file)),
        size_(size) {}
  void Rotate();

  std::string path_;
  RotationLimits limits_;
  Descriptor file_;
  uint64_t size_;
};

// PATH and the older ones of it that are there, the oldest first.
std::vector<std::string> RotatedFiles(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_ROTATING_FILE_H_
