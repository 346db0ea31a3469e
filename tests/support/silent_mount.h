// A file system that never answers: a FUSE mount whose server reads every
// request and stays silent. Whatever touches a file of it hangs, and can't be
// killed, until this object goes. Needs root and /dev/fuse.
#ifndef GAVEL_TESTS_SUPPORT_SILENT_MOUNT_H_
#define GAVEL_TESTS_SUPPORT_SILENT_MOUNT_H_

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel::testing {

class SilentMount {
 public:
  // Makes the directory `path`. UNAVAILABLE, with the reason, where this test
  // can't have one.
  static absl::StatusOr<std::unique_ptr<SilentMount>> Make(
      const std::string& path) {
    if (geteuid() != 0) return absl::UnavailableError("a mount needs root");
    const int server = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (server < 0) {
      return absl::UnavailableError(std::string("/dev/fuse: ") +
                                    std::strerror(errno));
    }
    mkdir(path.c_str(), 0755);
    // All users may reach it, as jobs' users reach theirs.
    const std::string options =
        "fd=" + std::to_string(server) +
        ",rootmode=40000,user_id=0,group_id=0,allow_other";
    if (mount("silent", path.c_str(), "fuse", MS_NOSUID | MS_NODEV,
              options.c_str()) != 0) {
      const std::string error = std::strerror(errno);
      close(server);
      return absl::UnavailableError("mount of a FUSE file system: " + error);
    }
    return std::unique_ptr<SilentMount>(new SilentMount(path, server));
  }

  ~SilentMount() {
    stopping_ = true;
    thread_.join();
    umount2(path_.c_str(), MNT_FORCE | MNT_DETACH);
    close(server_);  // ends all requests
  }
  SilentMount(const SilentMount&) = delete;
  SilentMount& operator=(const SilentMount&) = delete;

  // Somebody hangs in it.
  bool asked() const { return asked_; }

 private:
  SilentMount(std::string path, int server)
      : path_(std::move(path)), server_(server), thread_([this] { Serve(); }) {}

  void Serve() {
    std::vector<char> request(1 << 17);
    while (!stopping_) {
      pollfd item{server_, POLLIN, 0};
      constexpr int kInterval_ms = 20;
      poll(&item, 1, kInterval_ms);
      const ssize_t bytes = read(server_, request.data(), request.size());
      if (bytes < static_cast<ssize_t>(sizeof(fuse_in_header))) continue;
      fuse_in_header header{};
      std::memcpy(&header, request.data(), sizeof header);
      if (header.opcode == FUSE_INIT) {
        Greet(header.unique);
      } else {
        asked_ = true;
      }
    }
  }

  void Greet(uint64_t unique) const {
    struct {
      fuse_out_header header;
      fuse_init_out body;
    } answer{};
    answer.header.len = sizeof answer;
    answer.header.unique = unique;
    answer.body.major = FUSE_KERNEL_VERSION;
    answer.body.minor = FUSE_KERNEL_MINOR_VERSION;
    answer.body.max_write = 4096;
    [[maybe_unused]] const ssize_t written =
        write(server_, &answer, sizeof answer);
  }

  const std::string path_;
  const int server_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> asked_{false};
  std::thread thread_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_SILENT_MOUNT_H_
