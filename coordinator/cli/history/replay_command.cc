#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "coordinator/cli/commands.h"
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
  std::printf(
      "%llu rows in %llu steps, %llu decisions: %llu as journaled, %llu "
      "otherwise today, %llu that followed from what was not journaled; "
      "%llu allocations solved again\n",
      static_cast<unsigned long long>(summary.rows),
      static_cast<unsigned long long>(summary.steps),
      static_cast<unsigned long long>(summary.decided),
      static_cast<unsigned long long>(summary.same),
      static_cast<unsigned long long>(summary.other),
      static_cast<unsigned long long>(summary.not_told),
      static_cast<unsigned long long>(summary.solves));
  return absl::OkStatus();
}

}  // namespace

void AddReplayCommand(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = app.add_subcommand(
      "replay",
      "Decides an incident again, event by event, from a coordinator's "
      "journal, which it only reads; a coordinator may be running on it");
  command
      ->add_option("journal", flags->run.path,
                   "STATE, its journal.db, or a copy")
      ->required()
      ->type_name("HISTORY.db");
  command->add_option("--from", flags->run.from, "first row that is shown")
      ->type_name("SEQ")
      ->capture_default_str();
  command->add_option("--to", flags->run.to, "last row that is shown")
      ->type_name("SEQ");
  command->add_option("--job", flags->job, "only what names this job")
      ->type_name("ID|NAME");
  command->add_option("--policy", flags->run.policy,
                      "decides by this one, not by the one of then");
  command->add_flag("--no-solve", flags->no_solve,
                    "takes the allocations as they were journaled");
  command->add_flag("--different", flags->different,
                    "shows only what this build decides otherwise");
  command->add_flag("--step", flags->step, "waits for Enter after each step");
  command->callback(
      [flags, exit_code] { *exit_code = ExitCodeOf(Run(*flags)); });
}

}  // namespace gavel
