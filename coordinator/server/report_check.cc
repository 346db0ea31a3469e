#include "coordinator/server/report_check.h"

#include <bit>
#include <variant>

#include "core/text.h"

namespace gavel {
namespace {

// A throughput times its window is a count of steps but for rounding.
constexpr double kRounding = 1e-6;

}  // namespace

std::optional<std::string> ReportCheck::Take(Time now, Message* message) {
  if (const auto* hello = std::get_if<WorkerHello>(message)) {
    Saw(now, hello->worker, hello->progress.steps_done);
  } else if (const auto* exited = std::get_if<WorkerExited>(message)) {
    Forget(exited->worker);
  }
  auto* report = std::get_if<StepReport>(message);
  if (report == nullptr || Check(now, report->worker, &report->progress) ||
      !std::has_single_bit(++left_out_)) {
    return std::nullopt;
  }
  return StrCat("job ", report->worker.job.value(), " rank ",
                report->worker.rank,
                ": the speed that it reports does not agree with its steps and "
                "the time, and is left out (",
                left_out_, " reports so far)");
}

bool ReportCheck::Saw(Time now, const WorkerKey& worker, uint64_t steps_done) {
  if (last_.size() >= kWorkersMax && !last_.contains(worker)) last_.clear();
  return last_.try_emplace(worker, Last{steps_done, now}).second;
}

bool ReportCheck::Check(Time now, const WorkerKey& worker, Progress* told) {
  if (Saw(now, worker, told->steps_done)) return true;
  Last& last = last_.at(worker);
  const double steps = static_cast<double>(told->steps_done) -
                       static_cast<double>(last.steps_done);
  const double claimed = told->throughput_steps_per_s * told->window_s;
  // One at a pause tells steps and no speed: the next window reaches back to
  // before it.
  if (told->throughput_steps_per_s == 0 && told->window_s == 0) return true;
  const bool agrees = claimed <= steps * (1 + kRounding) + 1 &&
                      told->window_s <= now - last.at + kSlack_s;
  if (told->steps_done != last.steps_done) last = {told->steps_done, now};
  if (!agrees) told->throughput_steps_per_s = told->window_s = 0;
  return agrees;
}

}  // namespace gavel
