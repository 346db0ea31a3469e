// Standard output as a terminal: its size, and text that replaces the text
// before. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_TERMINAL_H_
#define GAVEL_COORDINATOR_CLI_TERMINAL_H_

#include <cstddef>
#include <string>

namespace gavel {

class Terminal {
 public:
  Terminal();
  bool is_terminal() const { return is_terminal_; }
  // Of the terminal; kTableWidth when it is none.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_TERMINAL_H_
