// Copies of a coordinator's journal, and back: all that it remembers of jobs,
// shares and history. Keys, principals, checkpoints and output of jobs are
// files of their own, and not in it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/daemon_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/server/journal/journal.h"
#include "coordinator/server/journal/journal_chain.h"
#include "coordinator/server/journal/sqlite.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/descriptor.h"
#include "runtime/files/private_directory.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// As SQL has it.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

absl::Status Sync(const std::string& path) {
  const Descriptor opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.get() >= 0 && fsync(opened.get()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, ToAbsl(path));
}

std::string FolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// It gets its name once all of it is on disk.
absl::Status Publish(const std::string& part, const std::string& path) {
  GAVEL_RETURN_IF_ERROR(Sync(part));
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return Sync(FolderOf(path));
}

// All rows that are there follow on each other.
absl::StatusOr<JournalPosition> Verify(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(auto database, SqliteDatabase::OpenReadOnly(path));
  GAVEL_RETURN_IF_ERROR(CheckJournalFormat(database, Journal::kFormatVersion));
  RecoverInto into;
  into.begin = [](const JournalSnapshot*) { return absl::OkStatus(); };
  into.take = [](const JournalRow&) { return absl::OkStatus(); };
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd end, RecoverChain(database, into));
  return end.position;
}

// One moment of it; readers keep no writer waiting.
absl::Status CopyDatabase(const std::string& from, const std::string& to) {
  GAVEL_ASSIGN_OR_RETURN(auto database, SqliteDatabase::OpenReadOnly(from));
  // Of the copy. The file is opened to be read only, whatever is asked for.
  GAVEL_RETURN_IF_ERROR(database.Execute("PRAGMA query_only=OFF"));
  const mode_t before = umask(0077);
  const absl::Status copied =
      database.Execute(StrCat("VACUUM INTO ", Quoted(to)).c_str());
  umask(before);
  return copied;
}

// Before anything is made for it. What the database says of a file that ends in
// the middle varies.
absl::Status CheckBackup(const std::string& file) {
  const absl::Status good = Verify(file).status();
  switch (good.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kFailedPrecondition:  // of another version
    case absl::StatusCode::kPermissionDenied:
      return Annotate(good, file);
    default:
      return absl::DataLossError(
          StrCat(file, " is incomplete or damaged: ", good.message(),
                 "; copy it again, or restore another backup"));
  }
}

absl::StatusOr<JournalPosition> CopyVerified(const std::string& from,
                                             const std::string& to) {
  const std::string part = to + ".part";
  std::remove(part.c_str());
  absl::Status done = Annotate(CopyDatabase(from, part), from);
  JournalPosition end;
  if (done.ok()) {
    const absl::StatusOr<JournalPosition> verified = Verify(part);
    done = Annotate(verified.status(), from);
    if (verified.ok()) end = *verified;
  }
  if (done.ok()) done = Publish(part, to);
  if (done.ok()) return end;
  std::remove(part.c_str());
  return done;
}

// Writes the journal in `state_directory` into `file`, mode 0600: one moment of
// it, verified, while the coordinator may run. The last row that is in it.
// ALREADY_EXISTS: the file is there. NOT_FOUND: there is no journal. DATA_LOSS:
// it is damaged.
absl::StatusOr<JournalPosition> BackUpJournal(
    const std::string& state_directory, const std::string& file) {
  const std::string journal = state_directory + "/journal.db";
  if (!Exists(journal)) {
    return absl::NotFoundError(
        StrCat("there is no journal in ", state_directory,
               "; name the coordinator's state directory with --state"));
  }
  if (Exists(file)) {
    return absl::AlreadyExistsError(
        StrCat(file, " is there already; give the backup another name"));
  }
  GAVEL_RETURN_IF_ERROR(CheckWritable(file));
  return CopyVerified(journal, file);
}

// Makes it the journal of `state_directory`, which is made when it is not
// there. ALREADY_EXISTS: there is one. NOT_FOUND, DATA_LOSS,
// FAILED_PRECONDITION: there is no such file, it is no whole journal, or of a
// newer version; then nothing is changed.
absl::StatusOr<JournalPosition> RestoreJournal(
    const std::string& file, const std::string& state_directory) {
  if (!Exists(file)) {
    return absl::NotFoundError(StrCat("there is no file ", file));
  }
  const std::string journal = state_directory + "/journal.db";
  for (const char* part : {"", "-wal", "-shm"}) {
    if (!Exists(journal + part)) continue;
    return absl::AlreadyExistsError(
        StrCat(journal, part,
               " is there; stop the coordinator, and move its state directory "
               "away first"));
  }
  GAVEL_RETURN_IF_ERROR(CheckBackup(file));
  GAVEL_ASSIGN_OR_RETURN(const PrivateDirectory state,
                         PrivateDirectory::Make(state_directory, "--state"));
  return CopyVerified(file, state.path() + "/journal.db");
}

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
  absl::PrintF("%s has the journal of %s up to %s\n", options.file,
               options.state, PositionText(last));
  return absl::OkStatus();
}

absl::Status Restore(const BackupOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const JournalPosition last,
                         RestoreJournal(options.file, options.state));
  absl::PrintF(
      "%s has the journal of %s up to %s. What came behind it is lost; start "
      "once with\n  gavel coordinator --state %s --accept-loss\n",
      options.state, options.file, PositionText(last), options.state);
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
