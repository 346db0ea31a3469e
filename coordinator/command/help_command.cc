#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/command/command_advice.h"
#include "coordinator/command/command_pages.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

struct HelpOptions {
  std::string version;
  std::vector<std::string> words;
  bool files = false;
  std::string man_directory;
};

absl::Status WriteManPages(const CLI::App& app, const std::string& version,
                           const std::string& directory) {
  GAVEL_RETURN_IF_ERROR(MakeDirectory(directory));
  for (const ManPage& page : MakeManPages(ListCommands(app), version)) {
    GAVEL_RETURN_IF_ERROR(
        WriteFile(StrCat(directory, "/", page.file), page.text));
  }
  return absl::OkStatus();
}

// "gavel help job.toml": the page of the keys of files.
bool MeansFiles(const HelpOptions& options) {
  if (options.files) return true;
  if (options.words.size() != 1) return false;
  const std::string& word = options.words.front();
  return word == "files" || word == "job.toml" || word == "cluster.toml";
}

// NOT_FOUND: there is no such command.
absl::Status Help(CLI::App& app, const HelpOptions& options) {
  if (!options.man_directory.empty()) {
    return WriteManPages(app, options.version, options.man_directory);
  }
  if (MeansFiles(options)) {
    std::fputs(FilesDocument().c_str(), stdout);
    return absl::OkStatus();
  }
  const std::string unknown = UnknownCommand(app, options.words);
  if (!unknown.empty()) return absl::NotFoundError(unknown);
  const CLI::App* command = &app;
  std::string words = app.get_name();
  for (const std::string& word : options.words) {
    command = FindSubcommand(*command, word);
    if (command == nullptr) {
      return absl::NotFoundError(StrCat("there is no command \"", words, " ",
                                        word, "\"; `", words,
                                        " --help` tells what it takes"));
    }
    StrAppend(&words, " ", word);
  }
  // App::help() prints the help of the chosen command, which is this one.
  std::fputs(command->get_formatter()
                 ->make_help(command, words, CLI::AppFormatMode::Normal)
                 .c_str(),
             stdout);
  return absl::OkStatus();
}

}  // namespace

void AddHelpCommands(CLI::App& app, const std::string& version,
                     int* exit_code) {
  auto options = std::make_shared<HelpOptions>();
  options->version = version;
  CLI::App* help = app.add_subcommand(
      "help", "Tells the options of a command, or the keys of files");
  AddOption(*help, "command", options->words, "COMMAND",
            "its words, as in: user add");
  help->add_flag("--files", options->files,
                 "every key of job and cluster files, as Markdown");
  AddOption(*help, "--man", options->man_directory, "DIRECTORY",
            "writes the manual page of each command there");
  help->callback([&app, options, exit_code] {
    const absl::Status told = Help(app, *options);
    *exit_code = ExitCodeOf(told);
    if (absl::IsNotFound(told)) *exit_code = kExitUsage;
  });

  auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand(
      "completion", "Prints the script that completes commands in a shell");
  AddOption(*completion, "shell", *shell, "bash|zsh", "of which shell")
      ->check(CLI::IsMember({"bash", "zsh"}).description(""))
      ->required();
  completion->callback([&app, shell] {
    const std::vector<Command> commands = ListCommands(app);
    std::fputs(
        (*shell == "bash" ? BashCompletion(commands) : ZshCompletion(commands))
            .c_str(),
        stdout);
  });
}

}  // namespace gavel
