#include "iterator/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel::internal {
namespace {

constexpr int64_t kInterval_ns = 200'000'000;
// The speed is that of the last few seconds.
constexpr double kNewest = 0.1;
constexpr size_t kBarColumns = 30;
constexpr size_t kColumnsOtherwise = 80;
constexpr double kDay_s = 86400;

bool IsTerminal() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr &&
         std::string_view(kind) != "dumb";
}

size_t TerminalColumns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) {
    return kColumnsOtherwise;
  }
  return size.ws_col - 1U;  // a full line would wrap
}

std::string TimeText(double time_s) {
  if (!(time_s < 100 * kDay_s)) return "long";
  const auto seconds = static_cast<int64_t>(std::ceil(time_s));
  const int64_t hours = seconds / 3600;
  if (hours == 0) {
    return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
  }
  return absl::StrFormat("%d:%02d:%02d", hours, seconds / 60 % 60,
                         seconds % 60);
}

std::string SpeedText(double steps_per_s) {
  if (steps_per_s >= 1 || steps_per_s <= 0) {
    return absl::StrFormat("%.3g steps/s", steps_per_s);
  }
  return absl::StrFormat("%.3g s/step", 1 / steps_per_s);
}

const std::pair<std::string, double>* ScalarOf(const ProgressView& view) {
  const std::pair<std::string, double>* first = nullptr;
  for (const auto& scalar : view.scalars) {
    if (scalar.first == "loss") return &scalar;
    const bool is_rate =
        scalar.first == "lr" || absl::EndsWith(scalar.first, ".lr");
    if (first == nullptr && !is_rate) first = &scalar;
  }
  return first;
}

}  // namespace

std::string ProgressLine(const ProgressView& view, size_t columns) {
  std::string before = StrCat(view.unit, " ", view.done);
  std::string after = SpeedText(view.steps_per_s);
  if (const auto* scalar = ScalarOf(view)) {
    StrAppend(&after, "  ", scalar->first,
              absl::StrFormat(" %.4g", scalar->second));
  }
  if (view.total > 0) {
    const uint64_t done = std::min(view.done, view.total);
    const double part =
        static_cast<double>(done) / static_cast<double>(view.total);
    StrAppend(&before, "/", view.total);
    if (view.steps_per_s > 0) {
      const double left_s =
          static_cast<double>(view.total - done) / view.steps_per_s;
      StrAppend(&after, "  ", TimeText(left_s), " left");
    }
    after = absl::StrFormat("%3d %%  %s", std::lround(std::floor(part * 100)),
                            after);
    // The bar has what the words leave.
    const size_t words = before.size() + after.size() + 6;
    if (words + 5 <= columns) {
      const size_t width = std::min(kBarColumns, columns - words);
      const auto full = static_cast<size_t>(part * static_cast<double>(width));
      StrAppend(&before, " [", std::string(full, '#'),
                std::string(width - full, ' '), "]");
    }
  }
  return StrCat(before, "  ", after).substr(0, columns);
}

ProgressBar::ProgressBar(const SessionOptions& options, Log& log)
    : options_(options), log_(log) {
  if (options.progress_bar && options.coordinator.empty() &&
      options.rank == 0 && !options.log && IsTerminal()) {
    next_ns_ = 0;
  }
}

void ProgressBar::BeginLoop(const RangePosition& range, uint64_t steps_done) {
  if (next_ns_ == kNever_ns) return;
  const int64_t all = range.StepsPerEpoch();
  const int64_t done = all - range.StepsLeft();
  steps_of_loop_ = static_cast<uint64_t>(all);
  steps_before_loop_ = steps_done - static_cast<uint64_t>(done);
}

void ProgressBar::Draw(int64_t now_ns, uint64_t steps_done, int64_t running_ns,
                       std::vector<std::pair<std::string, double>> scalars) {
  next_ns_ = now_ns + kInterval_ns;
  if (steps_done > last_steps_ && drawn_ && running_ns > last_running_ns_) {
    const double now_per_s = static_cast<double>(steps_done - last_steps_) *
                             1e9 /
                             static_cast<double>(running_ns - last_running_ns_);
    steps_per_s_ = steps_per_s_ == 0
                       ? now_per_s
                       : steps_per_s_ + kNewest * (now_per_s - steps_per_s_);
  }
  if (steps_done > last_steps_ || !drawn_) {
    last_steps_ = steps_done;
    last_running_ns_ = running_ns;
  }
  drawn_ = true;
  ProgressView view{"step", steps_done,
                    static_cast<uint64_t>(options_.steps_total), steps_per_s_,
                    std::move(scalars)};
  if (view.total == 0 && steps_of_loop_ > 0) {
    view.unit = "step of epoch";
    view.done = steps_done - steps_before_loop_;
    view.total = steps_of_loop_;
  }
  log_.ShowLastLine(ProgressLine(view, TerminalColumns()));
}

void ProgressBar::End() {
  if (drawn_) log_.EndLastLine();
  next_ns_ = kNever_ns;
  drawn_ = false;
}

}  // namespace gavel::internal
