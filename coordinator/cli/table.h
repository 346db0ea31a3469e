// The coordinator's JSON as rows (server/rows.h), and rows as tables of text
// for the terminal. A field of the JSON that is missing or of another type
// keeps its default, so that a client can ask an older or newer coordinator.
// Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_TABLE_H_
#define GAVEL_COORDINATOR_CLI_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/server/rows.h"
#include "coordinator/workload/json_fields.h"
#include "core/text_table.h"

namespace gavel {

std::vector<QueueRow> ParseQueue(const Json& json);
std::vector<NodeRow> ParseNodes(const Json& json);
StatusRow ParseStatus(const Json& json);
WhyRow ParseWhy(const Json& json);
std::vector<ForecastRow> ParseForecast(const Json& json);

// "42_7" of an element of an array, else "12".
std::string ShownId(const QueueRow& job);

// "R" is "running".
std::string_view StateWord(std::string_view letters);

// The letters that `state` means: "R" and "running" are {"R"}. Empty: none.
std::vector<std::string> StateLettersOf(std::string_view state);

// Sorts running jobs first, then waiting, held and ended ones; within each
// group the order stays.
void SortLiveFirst(std::vector<QueueRow>& rows);

// A line of a listing: one job, or all elements of an array that are in one
// state and have never started, at the place of the first.
struct QueueLine {
  std::vector<const QueueRow*> jobs;  // not empty
  // "7", "42_7" of an element, "42_[7-99]" of several; "42_[...,7-99]" where
  // others of that state may have been left out.
  std::string id;
  std::string name;  // of the job, or of the array
};
// In the order of the rows, which outlive the lines. `is_cut`: some jobs that
// have ended are not among the rows.
std::vector<QueueLine> LinesOf(const std::vector<QueueRow>& rows,
                               bool is_cut = false);

// The reason of most of its jobs, with the remedy for all of them.
std::string ReasonOf(const QueueLine& line);

// The look of squeue:
// JOBID NAME USER ST ACCELERATOR STEPS STEPS/S LOSS TARGET/GOT PAUSES MOVES
// NODELIST(REASON); USER where jobs have an owner.
// Rows in the order that they have.
std::string RenderQueue(const std::vector<QueueRow>& rows,
                        size_t width = kTableWidth, bool is_cut = false);

// An app as `gavel apps` shows it.
struct AppRow {
  std::string app;
  std::string owner;  // empty: connections have no keys
  int jobs = 0;       // that have not ended
  int running = 0;
  int accelerators = 0;  // held
  // The work of its jobs whose length is known, alone where each is fastest,
  // and the work that is to come.
  double left_accelerator_s = 0;
  // The second part alone: the most that a job's QueueRow::app_to_come_s says.
  double to_come_accelerator_s = 0;
  std::optional<double> rho;  // QueueRow::rho
  std::string bidder;         // QueueRow::bidder
};
// The apps of jobs that have not ended, by owner and name.
std::vector<AppRow> AppsOf(const std::vector<QueueRow>& rows);
Json AppsJson(const std::vector<AppRow>& rows);
std::string RenderApps(const std::vector<AppRow>& rows,
                       size_t width = kTableWidth);

// The look of sinfo, one line for each server and accelerator type and state.
std::string RenderNodes(const std::vector<NodeRow>& rows,
                        size_t width = kTableWidth);

// One line: round, policy, how many jobs in which state.
std::string RenderStatusLine(const StatusRow& status);
// That line, and one each of leases and journal, of turns on trial, and of the
// last allocation.
std::string RenderStatus(const StatusRow& status);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_TABLE_H_
