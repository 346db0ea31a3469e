// A directory whose file system never answers: whoever looks into it waits
// until the mount goes. As root, where FUSE is there; not thread-safe.
#ifndef GAVEL_TESTS_SUPPORT_HANGING_MOUNT_H_
#define GAVEL_TESTS_SUPPORT_HANGING_MOUNT_H_

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "core/text.h"

namespace gavel::testing {

class HangingMount {
 public:
  // At `path`, which is made. Nobody ever reads the device's requests.
  explicit HangingMount(std::string path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    device_ = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device_ < 0) return;
    const std::string options = StrCat(
        "fd=", device_, ",rootmode=40000,user_id=0,group_id=0,", "allow_other");
    mounted_ = mount("gavel-hangs", path_.c_str(), "fuse", MS_NOSUID | MS_NODEV,
                     options.c_str()) == 0;
  }
  // Whoever waits gets an error.
  ~HangingMount() {
    if (device_ >= 0) close(device_);
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  HangingMount(const HangingMount&) = delete;
  HangingMount& operator=(const HangingMount&) = delete;

  // False: not as root, or without FUSE; a test that needs it is skipped.
  bool mounted() const { return mounted_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int device_ = -1;
  bool mounted_ = false;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_HANGING_MOUNT_H_
