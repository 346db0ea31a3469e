#include "coordinator/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "coordinator/cli/table.h"
#include "core/error_line.h"
#include "core/text.h"

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

}  // namespace gavel
