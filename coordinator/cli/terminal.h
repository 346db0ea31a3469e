// Output of commands for people: standard output as a terminal, a progress bar,
// points in time as text, and what a sweep of simulations shows.
#ifndef GAVEL_COORDINATOR_CLI_TERMINAL_H_
#define GAVEL_COORDINATOR_CLI_TERMINAL_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/files/stopwatch.h"

namespace gavel::study {
struct SweepProgress;
}

namespace gavel {

// Standard output as a terminal: its size, and text that replaces the text
// before. Not thread-safe.
class Terminal {
 public:
  Terminal();
  bool is_terminal() const { return is_terminal_; }
  // The width of the terminal; kTableWidth (core/text_table.h) when standard
  // output is none.
  size_t width() const;
  // The same for tables; kUncut when it is none: a file or pipe gets all.
  size_t table_width() const;

  // Replaces the text of the last call; lines beyond the terminal's height are
  // left out. On a file or pipe it only writes.
  void Show(const std::string& text);
  // Writes it all; a terminal gets it Visible (core/error_line.h), for it may
  // quote what other users wrote.
  void Write(const std::string& text) const;

 private:
  size_t height() const;
  const bool is_terminal_;
  size_t lines_shown_ = 0;
};

// Asks "QUESTION [y/N] " on stderr, and reads the answer from standard input,
// which is a terminal. True: yes.
bool Confirm(const std::string& question);

// The functions below are pure, stateless and thread-safe.

// "LABEL [#########...........]  45 %  2 min left  NOTE", at most `width`
// characters with the line's end. `elapsed_s`: that `fraction` took; the rest
// is taken to go as fast.
std::string RenderBar(std::string_view label, double fraction, double elapsed_s,
                      std::string_view note, size_t width);

// Points in time as text are in the machine's time zone.

// "2026-11-21", "2026-11-21T18:30" or with seconds (a space will do for the T);
// "30m", "2h" and "7d" are so long before `now_s`. Seconds since 1970.
// INVALID_ARGUMENT: none of these.
absl::StatusOr<double> ParseWallTime(const std::string& text, double now_s);
// The same, but that "30m" is so long after `now_s`.
absl::StatusOr<double> ParseTimeAhead(const std::string& text, double now_s);

// "2026-11-21T18:30:05"; "-" for 0, which is "not yet".
std::string FormatWallTime(double time_s);

// ---- What a sweep of simulations shows while it runs
//
// Called by the commands that run one: `gavel sweep` and `gavel reproduce`.

inline constexpr size_t kUncutWidth = 1000;

// On a terminal a bar with the time that is left and the runs that go on; else
// a line for each run that has ended. Not thread-safe.
class SweepScreen {
 public:
  // `quiet`: no lines; standard output is for something else.
  explicit SweepScreen(std::string label, bool quiet = false)
      : label_(std::move(label)), quiet_(quiet) {}
  void Show(const study::SweepProgress& progress);
  void Clear();
  // The width of tables: the terminal's; a file or pipe takes lines of any
  // length.
  size_t width() const {
    return terminal_.is_terminal() ? terminal_.width() : kUncutWidth;
  }

 private:
  void ShowLines(const study::SweepProgress& progress);

  const std::string label_;
  const bool quiet_;
  Terminal terminal_;
  Stopwatch clock_;
  size_t told_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_TERMINAL_H_
