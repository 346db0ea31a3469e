#include "runtime/files/private_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/text.h"

namespace gavel {
namespace {

absl::Status DirectoryErrno(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(path));
}

}  // namespace

absl::StatusOr<PrivateDirectory> PrivateDirectory::Make(
    const std::string& given, std::string_view flag) {
  const auto refuse = [&](std::string_view why) {
    return absl::PermissionDeniedError(
        StrCat("directory ", given, " ", why, ", or name another with ", flag));
  };
  std::error_code error;
  std::string path =
      std::filesystem::absolute(given, error).lexically_normal().string();
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  const bool created =
      !error && std::filesystem::create_directories(path, error);
  // Root's and our own links are followed. Whoever else made it can turn it to
  // another place at any time.
  struct stat info {};
  if (!error && lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode) &&
      info.st_uid != geteuid() && info.st_uid != 0) {
    return refuse("is another user's symbolic link: remove it");
  }
  Descriptor descriptor(
      error ? -1 : open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0 || fstat(descriptor.get(), &info) != 0) {
    const int failed = error ? error.value() : errno;
    return refuse(StrCat("can't be used (",
                         std::generic_category().message(failed),
                         "): make room for it"));
  }
  if (info.st_uid != geteuid()) {
    return refuse(StrCat("belongs to user ", info.st_uid, ", not to ",
                         geteuid(), ": let its owner change or remove it"));
  }
  if (created && fchmod(descriptor.get(), 0700) != 0) {
    return DirectoryErrno(path);
  }
  if (!created && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refuse("may be written by others: chmod go-w it");
  }
  return PrivateDirectory(std::move(path), std::move(descriptor));
}

absl::Status PrivateDirectory::MakeFile(const std::string& name,
                                        mode_t mode) const {
  const Descriptor file(openat(descriptor_.get(), name.c_str(),
                               O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                               mode));
  if (file.get() < 0) return DirectoryErrno(StrCat(path_, "/", name));
  return absl::OkStatus();
}

absl::Status PrivateDirectory::SetMode(mode_t mode) const {
  if (fchmod(descriptor_.get(), mode) != 0) return DirectoryErrno(path_);
  return absl::OkStatus();
}

}  // namespace gavel
