// A progress bar with the time left, and readable durations and amounts. Pure;
// stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_PROGRESS_BAR_H_
#define GAVEL_COORDINATOR_CLI_PROGRESS_BAR_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gavel {

// "LABEL [#########...........]  45 %  2 min left  NOTE", at most `width`
// characters with the line's end. `elapsed_s`: that `fraction` took; the rest
// is taken to go as fast.
std::string RenderBar(std::string_view label, double fraction, double elapsed_s,
                      std::string_view note, size_t width);

// "0.42 s", "12 s", "3 min 20 s", "5 h 12 min", "3.2 days"; "-" for NaN or
// never.
std::string FormatDuration(double seconds);
// "0.83 h", "16.82 h", "104.1 h"; "-" for NaN or never.
std::string FormatHours(double seconds);
// "45.3 %"
std::string FormatPercent(double fraction);
// "1.234" of three decimals; "-" for NaN or infinity.
std::string FormatNumber(double value, int decimals);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PROGRESS_BAR_H_
