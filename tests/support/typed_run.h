// Commands that are typed at. Not thread-safe.
#ifndef GAVEL_TESTS_SUPPORT_TYPED_RUN_H_
#define GAVEL_TESTS_SUPPORT_TYPED_RUN_H_

#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "gavel_paths.h"
#include "tests/support/test.h"

namespace gavel::testing {

// A `gavel` command on a terminal, at which somebody presses keys.
class TypedRun {
 public:
  explicit TypedRun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), GAVEL_BINARY_DIR "/gavel");
    std::vector<char*> argv;
    for (std::string& one : arguments) argv.push_back(one.data());
    argv.push_back(nullptr);
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    execv(argv.front(), argv.data());
    _exit(127);
  }
  ~TypedRun() { Hang(); }
  TypedRun(const TypedRun&) = delete;
  TypedRun& operator=(const TypedRun&) = delete;

  // The window of the terminal is closed: the command gets SIGHUP.
  void Hang() {
    if (terminal_ >= 0) close(terminal_);
    terminal_ = -1;
  }
  void Resize(unsigned short rows, unsigned short columns) {
    const winsize window{rows, columns, 0, 0};
    EXPECT_EQ(ioctl(terminal_, TIOCSWINSZ, &window), 0);
  }

  // Waits until the terminal shows the text.
  bool Shows(const std::string& text) {
    std::array<char, 4096> some;
    while (shown_.find(text) == std::string::npos) {
      const ssize_t bytes = read(terminal_, some.data(), some.size());
      if (bytes <= 0) return false;
      shown_.append(some.data(), static_cast<size_t>(bytes));
    }
    return true;
  }
  void Type(std::string_view keys) {
    shown_.clear();
    EXPECT_EQ(write(terminal_, keys.data(), keys.size()),
              static_cast<ssize_t>(keys.size()));
  }
  int ExitCode() {
    Shows("\x01 never shown");
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int terminal_ = -1;
  pid_t pid_ = 0;
  std::string shown_;
};

inline constexpr char kCtrlC[] = "\x03";

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_TYPED_RUN_H_
