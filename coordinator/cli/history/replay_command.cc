#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/history/history_file.h"
#include "coordinator/cli/history/replay_run.h"
#include "coordinator/cli/wall_time.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

struct ReplayFlags {
  ReplayOptions run;
  std::string job;  // id or name; empty: all
  bool no_solve = false;
  bool step = false;       // waits for Enter
  bool different = false;  // shows only what is decided otherwise
};

std::string RenderStep(const ReplayStep& step) {
  std::string text = step.first_row == step.last_row
                         ? StrCat("row ", step.first_row)
                         : StrCat("rows ", step.first_row, "-", step.last_row);
  StrAppend(&text, absl::StrFormat("  term %d  %.3f s", step.term, step.time));
  if (step.wall_s > 0) StrAppend(&text, "  ", FormatWallTime(step.wall_s));
  text += "\n";
  for (const std::string& event : step.events) {
    StrAppend(&text, "  ", event, "\n");
  }
  for (const std::string& action : step.actions) {
    StrAppend(&text, "    -> ", action, "\n");
  }
  for (const std::string& reason : step.reasons) {
    StrAppend(&text, "    ", reason, "\n");
  }
  if (step.verdict == ReplayVerdict::kNotTold) {
    text += "    not decided again: what it followed from was not journaled\n";
  }
  for (const std::string& difference : step.differences) {
    StrAppend(&text, "    TODAY OTHERWISE: ", difference, "\n");
  }
  return text;
}

// False: the user wants no more.
bool WaitForEnter() {
  std::fputs("Enter: next step; q: end > ", stderr);
  std::fflush(stdout);
  const int first = std::getchar();
  for (int c = first; c != '\n' && c != EOF;) c = std::getchar();
  return first != 'q' && first != EOF;
}

absl::Status Run(ReplayFlags flags) {
  if (flags.run.from == 0 || flags.run.from > flags.run.to) {
    return absl::InvalidArgumentError(
        "--from must be a row from 1 on, and not behind --to");
  }
  flags.run.path = JournalIn(flags.run.path);
  if (!flags.job.empty()) {
    GAVEL_ASSIGN_OR_RETURN(flags.run.job,
                           FindJobInFile(flags.run.path, flags.job));
  }
  flags.run.solve = !flags.no_solve;
  GAVEL_ASSIGN_OR_RETURN(
      const ReplaySummary summary,
      ReplayJournal(flags.run, [&flags](const ReplayStep& step) {
        if (flags.different && step.verdict != ReplayVerdict::kOther) {
          return true;
        }
        std::fputs(RenderStep(step).c_str(), stdout);
        return !flags.step || WaitForEnter();
      }));
  absl::PrintF(
      "%d rows in %d steps, %d decisions: %d as journaled, %d otherwise today, "
      "%d that followed from what was not journaled; %d allocations solved "
      "again\n",
      summary.rows, summary.steps, summary.decided, summary.same, summary.other,
      summary.not_told, summary.solves);
  return absl::OkStatus();
}

}  // namespace

void AddReplayCommand(CLI::App& app, int* exit_code) {
  auto [command, flags] = AddCommand<ReplayFlags>(
      app, exit_code, "replay",
      "Decides an incident again, event by event, from a coordinator's "
      "journal, which it only reads; a coordinator may be running on it",
      Run);
  AddOption(command, "journal", flags.run.path, "HISTORY.db",
            "STATE, its journal.db, or a copy")
      ->required();
  AddOption(command, "--from", flags.run.from, "SEQ",
            "first row that is shown");
  command.add_option("--to", flags.run.to, "last row that is shown")
      ->type_name("SEQ");
  AddOption(command, "--job", flags.job, "ID|NAME", "only what names this job");
  AddOption(command, "--policy", flags.run.policy, "",
            "decides by this one, not by the one of then");
  command.add_flag("--no-solve", flags.no_solve,
                   "takes the allocations as they were journaled");
  command.add_flag("--different", flags.different,
                   "shows only what this build decides otherwise");
  command.add_flag("--step", flags.step, "waits for Enter after each step");
}

}  // namespace gavel
