#include "iterator/progress_bar.h"

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/support/test.h"

namespace gavel::internal {
namespace {

TEST(ProgressLine, TellsHowFarHowFastAndHowLong) {
  EXPECT_EQ(ProgressLine(
                {"step", 1200, 5000, 812, {{"lr", 0.1}, {"loss", 0.31}}}, 100),
            "step 1200/5000 [#######                       ]   24 %  "
            "812 steps/s  loss 0.31  0:05 left");
  EXPECT_EQ(ProgressLine({"step", 10, 0, 0.25, {{"model.lr", 1}}}, 80),
            "step 10  4 s/step");
  EXPECT_EQ(ProgressLine({"step", 9, 10, 1e-9, {}}, 40),
            "step 9/10   90 %  1e+09 s/step  long lef");
}

TEST(ProgressLine, FitsEveryWidthAndEveryNumber) {
  for (const uint64_t done : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) {
    for (const double speed : {0.0, 1e-300, 3.0, 1e300}) {
      for (size_t columns = 0; columns < 150; ++columns) {
        const ProgressView view{"step", done, 7, speed, {{"x", speed}}};
        EXPECT_LE(ProgressLine(view, columns).size(), columns);
      }
    }
  }
}

// The output of a child that has a terminal of its own.
std::string Shown(SessionOptions options, const char* kind) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    setenv("TERM", kind, 1);
    options.steps_total = 4;
    Log log(options.log);
    ProgressBar bar(options, log);
    if (bar.next_ns() <= 0) bar.Draw(0, 0, 0, {});
    log.Info("between");
    if (bar.next_ns() < kNever_ns) bar.Draw(1, 2, 500'000'000, {{"loss", 2}});
    bar.End();
    _exit(0);
  }
  std::string shown;
  char buffer[512];
  for (ssize_t got = 0; (got = read(terminal, buffer, sizeof(buffer))) > 0;) {
    shown.append(buffer, static_cast<size_t>(got));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return shown;
}

TEST(ProgressBar, StaysTheLastLineOfATerminal) {
  const std::string shown = Shown({}, "xterm");
  const std::string clear = "\r\033[K";
  EXPECT_THAT(shown, StartsWith(clear + "step 0/4 ["));
  EXPECT_THAT(shown, HasSubstr(clear + "gavel: between\r\nstep 0/4 ["));
  EXPECT_THAT(shown, HasSubstr(clear + "step 2/4 ["));
  EXPECT_THAT(shown, HasSubstr("4 steps/s  loss 2  0:01 left\r\n"));
}

TEST(ProgressBar, IsForProgramsThatRunAloneInATerminal) {
  SessionOptions managed;
  managed.coordinator = "127.0.0.1:1";
  SessionOptions second;
  second.rank = 1;
  SessionOptions off;
  off.progress_bar = false;
  for (const SessionOptions& options : {managed, second, off}) {
    EXPECT_EQ(Shown(options, "xterm"), "gavel: between\r\n");
  }
  EXPECT_EQ(Shown({}, "dumb"), "gavel: between\r\n");
}

}  // namespace
}  // namespace gavel::internal
