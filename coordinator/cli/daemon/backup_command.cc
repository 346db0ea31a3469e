#include <cstdio>
#include <string>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/backup.h"
#include "coordinator/cli/daemon/daemon_options.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

struct BackupOptions {
  std::string file;
  std::string state = kDefaultState;
};

std::string PositionText(const JournalPosition& position) {
  return StrCat("row ", position.seq, " of term ", position.term);
}

absl::Status BackUp(const BackupOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const JournalPosition last,
                         BackUpJournal(options.state, options.file));
  const std::string text = PositionText(last);
  std::printf("%s has the journal of %s up to %s\n", options.file.c_str(),
              options.state.c_str(), text.c_str());
  return absl::OkStatus();
}

absl::Status Restore(const BackupOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const JournalPosition last,
                         RestoreJournal(options.file, options.state));
  const std::string text = PositionText(last);
  std::printf(
      "%s has the journal of %s up to %s. What came behind it is lost; start "
      "once with\n  gavel coordinator --state %s --accept-loss\n",
      options.state.c_str(), options.file.c_str(), text.c_str(),
      options.state.c_str());
  return absl::OkStatus();
}

void Add(CLI::App& app, const char* name, const char* what,
         absl::Status (*run)(const BackupOptions&), int* exit_code) {
  auto [command, options] =
      AddCommand<BackupOptions>(app, exit_code, name, what, run);
  AddOption(command, "file", options.file, "FILE", "the backup")->required();
  AddOption(command, "--state", options.state, "",
            "the coordinator's state directory");
}

}  // namespace

void AddBackupCommands(CLI::App& app, int* exit_code) {
  Add(app, "backup",
      "Copies the coordinator's journal into FILE, also while it runs", BackUp,
      exit_code);
  Add(app, "restore",
      "Makes a backup the journal of a state directory that has none", Restore,
      exit_code);
}

}  // namespace gavel
