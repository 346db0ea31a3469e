#include "coordinator/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "absl/strings/str_format.h"
#include "core/error_line.h"
#include "core/text.h"
#include "core/text_table.h"
#include "study/simulation_run.h"
#include "study/simulation_store.h"
#include "study/sweep.h"

namespace gavel {
namespace {

winsize Size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return size;
}

// The first `lines_max` lines of `text`.
std::string Head(const std::string& text, size_t lines_max, size_t* lines) {
  size_t end = 0;
  *lines = 0;
  while (end < text.size() && *lines < lines_max) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
    ++*lines;
  }
  return text.substr(0, end);
}

constexpr size_t kBarWidth = 30;
// Before that the speed says little.
constexpr double kFractionKnown = 0.005;

absl::StatusOr<double> ParseTime(const std::string& text, double now_s,
                                 bool ahead) {
  if (const std::optional<double> away_s = ParseDuration(text)) {
    return ahead ? now_s + *away_s : now_s - *away_s;
  }
  for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
                           "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm parts{};
    const char* end = strptime(text.c_str(), form, &parts);
    if (end == nullptr || *end != '\0') continue;
    parts.tm_isdst = -1;
    const std::time_t time = std::mktime(&parts);
    if (time >= 0) return static_cast<double>(time);
  }
  return absl::InvalidArgumentError(StrCat(
      "\"", text,
      "\" is no time; write 2026-11-21, 2026-11-21T18:30, or 2h for two hours ",
      ahead ? "from now" : "ago"));
}

}  // namespace

Terminal::Terminal() : is_terminal_(isatty(STDOUT_FILENO) == 1) {}

size_t Terminal::width() const {
  const size_t columns = is_terminal_ ? Size().ws_col : 0;
  return columns == 0 ? kTableWidth : std::max<size_t>(columns, 40);
}

size_t Terminal::table_width() const { return is_terminal_ ? width() : kUncut; }

size_t Terminal::height() const {
  const size_t rows = Size().ws_row;
  return rows == 0 ? 24 : rows;
}

void Terminal::Show(const std::string& text) {
  std::string out;
  if (!is_terminal_) {
    out = text;
  } else {
    // Up to where the last one began, and all below away.
    if (lines_shown_ > 0) out = StrCat("\033[", lines_shown_, "A\r\033[J");
    out += Head(Visible(text), height() - 1, &lines_shown_);
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

void Terminal::Write(const std::string& text) const {
  const std::string out = is_terminal_ ? Visible(text) : text;
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

bool Confirm(const std::string& question) {
  std::fprintf(stderr, "%s [y/N] ", question.c_str());
  std::array<char, 256> answer{};
  if (std::fgets(answer.data(), answer.size(), stdin) == nullptr) return false;
  return answer[0] == 'y' || answer[0] == 'Y';
}

std::string RenderBar(std::string_view label, double fraction, double elapsed_s,
                      std::string_view note, size_t width) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const auto full = static_cast<size_t>(
      std::lround(fraction * static_cast<double>(kBarWidth)));
  std::string line = StrCat(label, " [", std::string(full, '#'),
                            std::string(kBarWidth - full, '.'), "] ",
                            absl::StrFormat("%3.0f %%", 100 * fraction));
  if (fraction >= kFractionKnown && fraction < 1) {
    StrAppend(&line, "  ",
              FormatDuration(elapsed_s * (1 - fraction) / fraction), " left");
  }
  if (!note.empty()) StrAppend(&line, "  ", note);
  return Cut(line, width > 1 ? width - 1 : 1) + "\n";
}

absl::StatusOr<double> ParseWallTime(const std::string& text, double now_s) {
  return ParseTime(text, now_s, /*ahead=*/false);
}

absl::StatusOr<double> ParseTimeAhead(const std::string& text, double now_s) {
  return ParseTime(text, now_s, /*ahead=*/true);
}

std::string FormatWallTime(double time_s) {
  if (!(time_s > 0) || time_s > 1e11) return "-";
  const auto time = static_cast<std::time_t>(time_s);
  std::tm parts{};
  std::array<char, 32> text{};
  if (localtime_r(&time, &parts) == nullptr) return "-";
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return text.data();
}

// ---- Sweeps.

namespace {

constexpr size_t kActiveShown = 8;

std::string ResultOf(const study::StoredRun& run) {
  std::string text =
      run.run.status == study::RunStatus::kOk
          ? StrCat("average JCT ", FormatHours(run.run.result.avg_jct_s),
                   ", makespan ", FormatHours(run.run.result.makespan_s))
          : StrCat(study::RunStatusName(run.run.status), ": ", run.run.detail);
  return StrCat(text, "  (", FormatDuration(run.run.wall_s), ")");
}

}  // namespace

void SweepScreen::ShowLines(const study::SweepProgress& progress) {
  for (const study::EndedRun& ended : progress.ended) {
    std::printf("[%zu/%zu] %s: %s\n", ++told_, progress.runs,
                ended.label.c_str(), ResultOf(ended.run).c_str());
  }
  std::fflush(stdout);
}

void SweepScreen::Show(const study::SweepProgress& progress) {
  if (!terminal_.is_terminal()) {
    if (!quiet_) ShowLines(progress);
    return;
  }
  std::string note = StrCat(progress.done, "/", progress.runs, " runs");
  if (progress.skipped > 0) {
    StrAppend(&note, ", ", progress.skipped, " known");
  }
  std::string text = RenderBar(label_, progress.fraction, clock_.elapsed_s(),
                               note, terminal_.width());
  const size_t shown = std::min(progress.active.size(), kActiveShown);
  for (size_t i = 0; i < shown; ++i) {
    StrAppend(&text,
              Cut(StrCat("  ", progress.active[i]), terminal_.width() - 1),
              "\n");
  }
  terminal_.Show(text);
}

void SweepScreen::Clear() {
  if (terminal_.is_terminal()) terminal_.Show("");
}

}  // namespace gavel
