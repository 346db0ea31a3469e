#include "coordinator/agent_host/output_channel.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"

namespace gavel {
namespace {

// As terminals have been: programs that ask lay out their tables for it.
constexpr winsize kWindow{24, 80, 0, 0};

bool SetRaw(int terminal) {
  termios modes{};
  if (tcgetattr(terminal, &modes) != 0) return false;
  cfmakeraw(&modes);
  return tcsetattr(terminal, TCSANOW, &modes) == 0 &&
         ioctl(terminal, TIOCSWINSZ, &kWindow) == 0;
}

std::optional<OutputChannel> OpenTerminal() {
  Descriptor reader(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (reader.get() < 0 || unlockpt(reader.get()) != 0) return std::nullopt;
  // Not by its name, which may be another's in this mount namespace.
  Descriptor writer(
      ioctl(reader.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (writer.get() < 0 || !SetRaw(writer.get())) return std::nullopt;
  return OutputChannel{std::move(reader), std::move(writer)};
}

absl::StatusOr<OutputChannel> OpenPipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "a pipe for a worker's output");
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return OutputChannel{Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace

absl::StatusOr<OutputChannel> OpenOutputChannel(
    const std::optional<UnixAccount>& account) {
  std::optional<OutputChannel> terminal = OpenTerminal();
  absl::StatusOr<OutputChannel> channel =
      terminal.has_value() ? absl::StatusOr<OutputChannel>(*std::move(terminal))
                           : OpenPipe();
  if (!channel.ok()) return channel;
  const int writer = channel->writer.get();
  if (account.has_value() && (fchown(writer, account->uid, account->gid) != 0 ||
                              fchmod(writer, 0600) != 0)) {
    return absl::ErrnoToStatus(errno, "the channel of a worker's output");
  }
  return channel;
}

}  // namespace gavel
