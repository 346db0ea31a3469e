// Interactive jobs: people wait for them, so they start at once. They take
// accelerators that are free, or those of training jobs, which pause at their
// next boundary, whatever the round. Such a job is opaque: once it runs it is
// never paused, moved or packed, and its accelerators are out of the policies'
// capacity until its end. The quota of an owner keeps anybody from using the
// class to jump the queue. An idle job is warned, and then ended.
//
// Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_INTERACTIVE_H_
#define GAVEL_COORDINATOR_ENGINE_INTERACTIVE_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// A job that is idle is warned in its terminal so long before it is ended, or
// after half of its limit.
inline constexpr double kIdleWarning_s = 60;

// Why the job can never start, by the quota of its owner; empty: it can.
std::string WhyNotInteractive(const State& s, const JobSpec& spec);
// Gives accelerators to the interactive jobs that wait, in the order of their
// submission. Training jobs make room for them. The engine calls it whenever
// jobs or accelerators have come or gone.
void SeatInteractive(State& s, Time now);
// Takes these accelerators from all other jobs.
void MakeWay(State& s, Time now, const Job& job,
             const std::vector<AcceleratorId>& places);

// How long nobody and nothing has used the job; 0 while it does not run.
double IdleSeconds(const Job& job, Time now);
// When the job is to be warned or ended next; kNever: it does not run.
Time IdleDue(const Job& job);
// Warns the job if it is time. True: it has been idle for its limit.
bool IsIdleTooLong(State& s, Time now, Job& job);
void Admit(State& s, Time now, const event::TerminalUsed& e);
// The driver says that the accelerator works: the job there is not idle.
void NoteUse(State& s, Time now, AcceleratorId accelerator);

// Why an interactive job that could run on some type has no accelerator.
Reason WhyNotSeated(const State& s, const Job& job);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_INTERACTIVE_H_
