#include "coordinator/command/command_pages.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/command/command_line.h"
#include "coordinator/policy/policy.h"
#include "coordinator/tune/search_spec.h"
#include "coordinator/workload/file_keys.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/user_files.h"

namespace gavel {

// ---- The commands as data ----

namespace {

std::vector<std::string> Split(const std::string& text, char by) {
  return absl::StrSplit(text, by, absl::SkipWhitespace());
}

bool IsPlaceholder(const std::string& type) {
  return std::ranges::any_of(type, absl::ascii_isupper);
}

// CLI11 writes the values of a check as "TEXT:{a,b}"; ours are also "a|b", of
// which "A|B" stands for anything.
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  for (const char* of_policies : {"policy", "example"}) {
    if (std::ranges::count(names, of_policies) > 0) return PolicyNames();
  }
  const std::string type = option.get_type_name();
  if (type == "POLICY") return PolicyNames();
  const size_t open = type.find('{');
  if (open != std::string::npos) {
    return Split(type.substr(open + 1, type.find('}') - open - 1), ',');
  }
  if (type.find('|') != std::string::npos && !IsPlaceholder(type)) {
    return Split(type, '|');
  }
  return {};
}

CommandOption OptionOf(const CLI::Option& option) {
  CommandOption result;
  for (const std::string& name : option.get_snames()) {
    result.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    result.names.push_back("--" + name);
  }
  if (option.get_positional()) result.place = option.get_name(true);
  if (option.get_type_size() != 0) {
    const std::string type = option.get_type_name();
    result.argument = type.substr(0, type.find(':'));
    result.values = ValuesOf(option);
    result.default_value = option.get_default_str();
  }
  result.meaning = option.get_description();
  result.variable = option.get_envname();
  result.required = option.get_required();
  result.repeated =
      option.get_expected_max() >= CLI::detail::expected_max_vector_size;
  return result;
}

// An option group is a command without a name, with a --help of its own.
void AddOptions(const CLI::App& app, Command* command) {
  for (const CLI::Option* option : app.get_options()) {
    const bool again = app.get_name().empty() && option == app.get_help_ptr();
    if (!again) command->options.push_back(OptionOf(*option));
  }
  for (const CLI::App* below : app.get_subcommands({})) {
    if (below->get_name().empty()) AddOptions(*below, command);
  }
}

void Add(const CLI::App& app, const std::string& before,
         std::vector<Command>* commands) {
  Command command;
  command.words = before + app.get_name();
  command.meaning = app.get_description();
  command.footer = app.get_footer();
  AddOptions(app, &command);
  std::vector<const CLI::App*> below = app.get_subcommands({});
  std::erase_if(below,
                [](const CLI::App* one) { return one->get_name().empty(); });
  for (const CLI::App* one : below) {
    command.commands.push_back(one->get_name());
  }
  const std::string words = command.words + " ";
  commands->push_back(std::move(command));
  for (const CLI::App* one : below) Add(*one, words, commands);
}

}  // namespace

std::vector<Command> ListCommands(const CLI::App& app) {
  std::vector<Command> commands;
  Add(app, "", &commands);
  return commands;
}

// ---- Completion in shells ----

namespace {

// Both scripts walk down to the command that is being typed: `at` is
// "gavel user add".
constexpr char kBashWalk[] = R"sh(
_gavel() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at=gavel i words
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case " $(_gavel_commands "$at") " in
      *" ${COMP_WORDS[i]} "*)
        if [[ -n $(_gavel_options "$at ${COMP_WORDS[i]}") ]]; then
          at="$at ${COMP_WORDS[i]}"
        fi ;;
    esac
  done
  if [[ $prev == '=' ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
  if [[ $cur == '=' ]]; then cur=''; fi
  words=$(_gavel_values "$at $prev")
  if [[ -z $words ]]; then
    case $cur in
      -*) words=$(_gavel_options "$at") ;;
      *) words=$(_gavel_commands "$at") ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _gavel gavel
)sh";

// Its arrays avoid names that zsh uses itself ("commands", "options").
constexpr char kZshWalk[] = R"sh(
  local at=gavel word
  local -a below flags choices
  for word in ${words[2,CURRENT-1]}; do
    _gavel_commands $at
    _gavel_options "$at $word"
    if (( ${below[(I)$word:*]} && $#flags )); then at="$at $word"; fi
  done
  _gavel_values "$at ${words[CURRENT-1]}"
  if (( $#choices )); then
    _describe value choices
    return
  fi
  _gavel_commands $at
  _gavel_options $at
  if [[ ${words[CURRENT]} == -* ]]; then
    _describe -o option flags
  elif (( $#below )); then
    _describe command below
  else
    _files
  fi
}
_gavel "$@"
)sh";

std::vector<std::string> NamesOf(const Command& command) {
  std::vector<std::string> names;
  for (const CommandOption& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// The words that may follow the command: commands below it, or values of an
// argument; a COMMAND is one of the program.
std::vector<std::string> WordsAfter(const Command& command,
                                    const std::vector<Command>& commands) {
  std::vector<std::string> words = command.commands;
  for (const CommandOption& option : command.options) {
    if (option.place.empty()) continue;
    const std::vector<std::string>& values = option.argument == "COMMAND"
                                                 ? commands.front().commands
                                                 : option.values;
    words.insert(words.end(), values.begin(), values.end());
  }
  return words;
}

// For single quotes.
std::string Quoted(const std::string& text) {
  return StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// NAME:DESCRIPTION, as _describe reads it.
std::string Described(const std::string& name, const std::string& meaning) {
  return Quoted(
      StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", meaning));
}

std::string BashFunction(const std::string& name, const std::string& cases) {
  return StrCat(name, "() {\n  case $1 in\n", cases, "  esac\n}\n");
}

std::string BashCase(const std::string& at,
                     const std::vector<std::string>& words) {
  if (words.empty()) return "";
  return StrCat("    ", Quoted(at), ") echo ",
                Quoted(absl::StrJoin(words, " ")), " ;;\n");
}

std::string ZshFunction(const std::string& name, const std::string& array,
                        const std::string& cases) {
  return StrCat(name, "() {\n  ", array, "=()\n  case $1 in\n", cases,
                "  esac\n}\n");
}

std::string ZshCase(const std::string& at, const std::string& array,
                    const std::vector<std::string>& words) {
  if (words.empty()) return "";
  return StrCat("    ", Quoted(at), ") ", array, "=(",
                absl::StrJoin(words, " "), ") ;;\n");
}

// The meaning of a command; empty if the words are a value.
std::string MeaningOf(const std::vector<Command>& commands,
                      const std::string& words) {
  for (const Command& command : commands) {
    if (command.words == words) return command.meaning;
  }
  return "";
}

}  // namespace

std::string BashCompletion(const std::vector<Command>& commands) {
  std::string below;
  std::string options;
  std::string values;
  for (const Command& command : commands) {
    below += BashCase(command.words, WordsAfter(command, commands));
    options += BashCase(command.words, NamesOf(command));
    for (const CommandOption& option : command.options) {
      for (const std::string& name : option.names) {
        values += BashCase(StrCat(command.words, " ", name), option.values);
      }
    }
  }
  return StrCat("# Made by `gavel completion bash`.\n",
                BashFunction("_gavel_commands", below),
                BashFunction("_gavel_options", options),
                BashFunction("_gavel_values", values), kBashWalk + 1);
}

std::string ZshCompletion(const std::vector<Command>& commands) {
  std::string below;
  std::string options;
  std::string values;
  for (const Command& command : commands) {
    std::vector<std::string> names;
    for (const std::string& name : WordsAfter(command, commands)) {
      names.push_back(Described(
          name, MeaningOf(commands, StrCat(command.words, " ", name))));
    }
    below += ZshCase(command.words, "below", names);
    names.clear();
    for (const CommandOption& option : command.options) {
      for (const std::string& name : option.names) {
        names.push_back(Described(name, option.meaning));
        std::vector<std::string> all;
        for (const std::string& value : option.values) {
          all.push_back(Quoted(value));
        }
        values += ZshCase(StrCat(command.words, " ", name), "choices", all);
      }
    }
    options += ZshCase(command.words, "flags", names);
  }
  return StrCat("#compdef gavel\n# Made by `gavel completion zsh`.\n",
                ZshFunction("_gavel_commands", "below", below),
                ZshFunction("_gavel_options", "flags", options),
                ZshFunction("_gavel_values", "choices", values), "_gavel() {",
                kZshWalk);
}

// ---- docs/files.md ----

namespace {

constexpr char kIntroduction[] =
    R"md(# Job files and cluster files: every key

`gavel help --files` prints this page, from the table that the parsers use. Both files are TOML 1.0. A key that is not
listed here is an error that names its line and the nearest key that there is; so is a value of another type or outside
its range, and a key that is written behind the header of another table than its own: keys of the top belong above the
first header. In braces (`environment = { entity = "x" }`) a variable, a type or a price may have any name.

)md";

constexpr char kJobFile[] = R"md(## `job.toml`

What `gavel submit`, `gavel local` and `gavel what-if` read: one job. At most 48 KiB.

```toml
name = "digits"
command = ["train_image", "--epochs", "20"]
weight = 2.0
[throughputs]
v100 = 45.5
```

)md";

constexpr char kClusterFile[] = R"md(## `cluster.toml`

What `gavel agent --cluster`, `gavel coordinator --cluster` and `gavel local --cluster` read: servers with their
accelerators, and how they are scheduled.

```toml
[scheduling]
policy = "max_min_fairness_perf"
[[server]]
name = "here"
[[server.accelerator]]
type = "cpu"
count = 2
```

)md";

constexpr char kSearchFile[] = R"md(## `search.toml`

What `gavel tune` reads: a search of hyperparameters ([tune.md](tune.md)). At most 64 KiB.

```toml
name = "digits"
method = "hyperband"
metric = "loss"
steps = 8100
steps_min = 100
[[parameter]]
name = "lr"
kind = "log_uniform"
min = 1e-5
max = 0.1
```

)md";

}  // namespace

std::string FilesDocument() {
  std::string text =
      StrCat(kIntroduction, kJobFile, FormatFileTables(JobFileTables()),
             kClusterFile, FormatFileTables(ClusterFileTables()), kSearchFile,
             FormatFileTables(tune::SearchFileTables()));
  text.pop_back();  // the empty line behind the last table
  return text;
}

// ---- The commands help and completion ----

namespace {

struct HelpOptions {
  std::vector<std::string> words;
  bool files = false;
  bool commands = false;
};

// "gavel help job.toml": the page of the keys of files.
bool MeansFiles(const HelpOptions& options) {
  if (options.files) return true;
  if (options.words.size() != 1) return false;
  const std::string& word = options.words.front();
  return word == "files" || word == "job.toml" || word == "cluster.toml";
}

// NOT_FOUND: there is no such command.
absl::Status Help(CLI::App& app, const HelpOptions& options) {
  if (options.commands) {
    for (const Command& command : ListCommands(app)) {
      std::printf("%s\t%s\n", command.words.c_str(), command.meaning.c_str());
    }
    return absl::OkStatus();
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

void AddHelpCommands(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* help = app.add_subcommand(
      "help", "Tells the options of a command, or the keys of files");
  AddOption(*help, "command", options->words, "COMMAND",
            "its words, as in: user add");
  help->add_flag("--files", options->files,
                 "every key of job and cluster files, as Markdown");
  help->add_flag("--commands", options->commands,
                 "every command and what it does, a line each");
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
