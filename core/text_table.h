// Tables of text for the terminal and for files, and numbers as people read
// them, in cells and elsewhere. Pure. Stateless, thread-safe.
#ifndef GAVEL_CORE_TEXT_TABLE_H_
#define GAVEL_CORE_TEXT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gavel {

// Columns (of a terminal) that tables fit by default.
inline constexpr size_t kTableWidth = 100;
// Nothing is cut: for files and pipes.
inline constexpr size_t kUncut = std::numeric_limits<size_t>::max();

struct Column {
  std::string title;
  bool right = false;    // numbers
  size_t width_max = 0;  // longer text is cut; 0: as wide as its texts
};
inline Column Left(std::string title, size_t width_max = 0) {
  return {std::move(title), false, width_max};
}
inline Column Right(std::string title, size_t width_max = 0) {
  return {std::move(title), true, width_max};
}
using TableRows = std::vector<std::vector<std::string>>;

// A line of titles, then one line a row. The last column takes the rest of
// `width` and is cut there. Widths are counted in UTF-8 characters.
std::string RenderTable(const std::vector<Column>& columns,
                        const TableRows& rows, size_t width = kTableWidth);

// At most `width` characters; the last one is "…" when something was cut.
std::string Cut(std::string_view text, size_t width);

// Numbers that can be read: "12345", "123k", "4.57M"; rates and losses with
// three or four digits; "-" for a rate of 0, which is "not known".
std::string FormatCount(uint64_t count);
// "500/12345"; "500" of no total.
std::string FormatSteps(uint64_t done, uint64_t total);
std::string FormatRate(double steps_per_s);
std::string FormatScalar(double value);

// "0.42 s", "12 s", "3 min 20 s", "5 h 12 min", "3.2 days"; "-" for NaN or
// never.
std::string FormatDuration(double seconds);
// Seconds of "90s", "30m", "1h30m" or "2d". nullopt: it is no such text.
std::optional<double> ParseDuration(std::string_view text);
// "0.83 h", "16.82 h", "104.1 h"; "-" for NaN or never.
std::string FormatHours(double seconds);
// "45.3 %"
std::string FormatPercent(double fraction);
// "1.234" of three decimals; "-" for NaN or infinity.
std::string FormatNumber(double value, int decimals);

// "3.5 GiB": the largest binary unit of which there is one; from KiB on.
std::string SizeText(uint64_t bytes);

}  // namespace gavel

#endif  // GAVEL_CORE_TEXT_TABLE_H_
