// A directory in which nobody else can put files in the place of ours: the
// coordinator's and the agent's own. Move-only; not thread-safe.
#ifndef GAVEL_RUNTIME_FILES_PRIVATE_DIRECTORY_H_
#define GAVEL_RUNTIME_FILES_PRIVATE_DIRECTORY_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

namespace gavel {

class PrivateDirectory {
 public:
  // Makes `given` and what is missing above it, of mode 0700; one that is there
  // stays as it is. PERMISSION_DENIED, naming it and `flag` ("--state"), by
  // which another is chosen: it can't be made, belongs to another user, others
  // may write to it, or it is another user's symbolic link.
  static absl::StatusOr<PrivateDirectory> Make(const std::string& given,
                                               std::string_view flag);

  const std::string& path() const { return path_; }  // absolute

  // A file in it, made when it is not there.
  absl::Status MakeFile(const std::string& name, mode_t mode) const;
  absl::Status SetMode(mode_t mode) const;

 private:
  PrivateDirectory(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;
  Descriptor descriptor_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_PRIVATE_DIRECTORY_H_
