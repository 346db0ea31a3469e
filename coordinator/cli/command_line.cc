#include "coordinator/cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/policy/policy.h"
#include "coordinator/tune/search_spec.h"
#include "coordinator/workload/file_keys.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"

namespace gavel {

// ---- What all commands use.

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  const std::string message(status.message());
  std::fprintf(stderr, "gavel: %s\n", message.c_str());
  return kExitFailed;
}

int ExitCodeOf(const absl::StatusOr<int>& exit_code) {
  return exit_code.ok() ? *exit_code : ExitCodeOf(exit_code.status());
}

std::string CheckAboveZero(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = end != text.c_str() && *end == '\0' && value > 0 &&
                    value < std::numeric_limits<double>::infinity();
  return good ? "" : StrCat(text, " is not a number above 0");
}

void PrintNotices(const std::vector<std::string>& notices) {
  for (const std::string& notice : notices) {
    std::fprintf(stderr, "gavel: note: %s\n", notice.c_str());
  }
}

int DaemonExitCodeOf(const absl::Status& status) {
  ExitCodeOf(status);
  return DaemonCodeOf(status);
}

// ---- Advice on a wrong command line ----

namespace {

// Words of Slurm, of batch systems, of kubectl, of the original Gavel, and
// those that people guess.
struct Foreign {
  std::string_view ours;   // what to write behind "gavel", by commas
  std::string_view words;  // by blanks
};

constexpr Foreign kForeign[] = {
    {"--version", "version"},
    {"agent", "slurmd worker worker.py"},
    {"cancel", "bkill delete kill qdel rm scancel"},
    {"cancel,shutdown", "stop"},
    {"coordinator", "run_scheduler.py scheduler serve slurmctld"},
    {"coordinator,agent", "server"},
    {"coordinator,submit", "run_scheduler_with_trace.py"},
    {"dashboard", "gui ui web"},
    {"drain", "cordon"},
    {"help --files", "config"},
    {"history", "sacct"},
    {"hold", "pause qhold suspend"},
    {"hold,release,requeue,update,drain,resume,why", "scontrol"},
    {"nodes", "servers sinfo"},
    {"queue", "bjobs jobs ps qstat squeue top"},
    {"queue,nodes", "get list ls"},
    {"release", "qrls unhold"},
    {"resume", "uncordon"},
    {"shutdown", "quit"},
    {"simulate",
     "simulate_scheduler_with_generated_jobs.py "
     "simulate_scheduler_with_trace.py"},
    {"status", "health"},
    {"submit", "apply bsub create qsub sbatch srun"},
    {"submit,coordinator,agent", "start"},
    {"sweep", "run_sweep_continuous.py run_sweep_static.py"},
    {"usage", "sreport sshare"},
    {"user add", "add-user adduser"},
    {"why", "describe sstat"},
    {"why,queue,history", "info job show"},
};

// A word that is not a command, and the place that describes it.
struct Topic {
  std::string_view word;
  std::string_view place;
};

constexpr Topic kTopics[] = {
    {"cluster", "`gavel help --files` and docs/files.md tell its keys"},
    {"files", "`gavel help --files` prints the keys of all files"},
    {"job", "`gavel help --files` and docs/files.md tell its keys"},
    {"policies",
     "`gavel solve --list-policies` names them, `gavel solve --example POLICY` "
     "shows what one reads"},
    {"throughput", "docs/simulator.md has the form of a throughput file"},
    {"throughputs",
     "docs/simulator.md has the form of a throughput file, and `gavel profile` "
     "measures one"},
    {"traces",
     "docs/simulator.md has their forms, and `gavel trace generate` draws one"},
};

// Flags of the original's scripts, and our option; that of the sweeps, which
// are keys of a file here, are in docs/from-gavel.md.
struct OriginalFlag {
  std::string_view flags;    // by blanks
  std::string_view option;   // of ours that they become
  std::string_view written;  // with a value as an example
};

constexpr OriginalFlag kOriginalFlags[] = {
    {"--assign_SLOs", "--slos", "--slos"},
    {"--checkpoint_file", "--save", "--save FILE"},
    {"--cluster_spec -c", "--cluster", "--cluster v100:25,p100:25,k80:25"},
    {"--enable_global_queue", "--queue", "--queue global, the default"},
    {"--fixed-job-duration -f", "--fixed-duration", "--fixed-duration SECONDS"},
    {"--generate-multi-gpu-jobs -m", "--multi-gpu", "--multi-gpu"},
    {"--generate-multi-priority-jobs", "--multi-priority", "--multi-priority"},
    {"--interval --time_per_iteration -i", "--round-duration",
     "--round-duration SECONDS"},
    {"--lam -l", "--rate", "--rate JOBS_PER_HOUR, which is 3600 / lam"},
    {"--num_gpus_per_server", "--cluster",
     "--cluster v100:36x4,p100:36x4,k80:36x4 for 4 of each server"},
    {"--num_reference_models", "--reference-models", "--reference-models N"},
    {"--output_trace_file_name", "--output", "--output FILE"},
    {"--per_instance_type_prices_dir", "--prices", "--prices FILE.csv"},
    {"--profiling_percentage", "--profiling-percentage",
     "--estimator --profiling-percentage PERCENT"},
    {"--simulate-steady-state", "--steady-state", "--steady-state"},
    {"--throughputs-file --throughputs_file", "--throughputs",
     "--throughputs FILE.json"},
    {"--trace_file -t", "--trace", "--trace FILE"},
    {"--window-end --window-start -e -s", "--window", "--window START:END"},
    {"-p", "--policy", "--policy NAME"},
};

bool IsFlag(const std::string& word) { return word.starts_with('-'); }

std::vector<std::string> NamesBelow(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return names;
}

bool Contains(const std::vector<std::string>& names, std::string_view word) {
  return std::ranges::find(names, word) != names.end();
}

// `words`: by blanks.
bool Lists(std::string_view words, std::string_view word) {
  return Contains(absl::StrSplit(ToAbsl(words), ' '), word);
}

std::vector<std::string> OursFor(std::string_view word,
                                 const std::vector<std::string>& names) {
  for (const Foreign& foreign : kForeign) {
    if (!Lists(foreign.words, word)) continue;
    std::vector<std::string> ours = absl::StrSplit(ToAbsl(foreign.ours), ',');
    std::erase_if(ours, [&](const std::string& one) {
      return !IsFlag(one) && !Contains(names, one.substr(0, one.find(' ')));
    });
    return ours;
  }
  return {};
}

// At most a third of the letters differ.
std::vector<std::string> NearestTo(std::string_view word,
                                   const std::vector<std::string>& names) {
  std::vector<std::string> nearest;
  size_t least = word.size() / 3 + 1;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(word, name);
    if (distance > least) continue;
    if (distance < least) nearest.clear();
    least = distance;
    nearest.push_back(name);
  }
  return nearest;
}

std::string Suggestion(const std::string& before,
                       const std::vector<std::string>& ours) {
  std::vector<std::string> quoted;
  for (const std::string& one : ours) {
    quoted.push_back(StrCat("`", before, " ", one, "`"));
  }
  return absl::StrJoin(quoted, ", ");
}

std::string Unknown(const CLI::App& command, const std::string& before,
                    const std::string& word) {
  const std::vector<std::string> names = NamesBelow(command);
  std::string text = StrCat("there is no command \"", before, " ", word, "\"");
  const bool top = command.get_parent() == nullptr;
  const std::vector<std::string> ours =
      top ? OursFor(word, names) : std::vector<std::string>();
  const auto* topic = std::ranges::find(kTopics, word, &Topic::word);
  if (top && topic != std::end(kTopics)) {
    return StrCat(text, "; ", topic->place);
  }
  if (!ours.empty()) {
    return StrCat(text, "; here it is ", Suggestion(before, ours));
  }
  const std::vector<std::string> nearest = NearestTo(word, names);
  if (!nearest.empty()) {
    StrAppend(&text, "; did you mean ", Suggestion(before, nearest), "?");
  }
  return StrCat(text, nearest.empty() ? "; " : " ", "`", before,
                " --help` lists them");
}

// "-p" of "-pfifo" is not looked for: CLI11 splits it as its own flags.
std::string FlagOf(const std::string& word) {
  return word.substr(0, word.find('='));
}

// The options of the command and of the groups in it.
std::vector<std::string> OptionsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  for (const CLI::App* group : command.get_subcommands({})) {
    if (!group->get_name().empty()) continue;
    for (const std::string& name : OptionsOf(*group)) {
      if (!Contains(names, name)) names.push_back(name);
    }
  }
  return names;
}

// The command that was chosen, and its words: "gavel user add".
const CLI::App* Chosen(const CLI::App& app, std::string* words) {
  const CLI::App* command = &app;
  *words = app.get_name();
  for (const CLI::App* next = command; next != nullptr; command = next) {
    next = nullptr;
    for (const CLI::App* below : command->get_subcommands({})) {
      if (!below->get_name().empty() && below->parsed()) next = below;
    }
    if (next == nullptr) break;
    StrAppend(words, " ", next->get_name());
  }
  return command;
}

bool HasPlaces(const CLI::App& command) {
  return std::ranges::any_of(
      command.get_options(),
      [](const CLI::Option* option) { return option->get_positional(); });
}

// The command that was probably meant by words that the command does not take;
// empty if unknown.
std::string MeantBy(const CLI::App& app, const CLI::App& command,
                    const std::string& words,
                    const std::vector<std::string>& unexpected) {
  const std::string& first = unexpected.front();
  if (IsFlag(first)) {
    const std::string flag = FlagOf(first);
    return absl::StrJoin(NearestTo(flag, OptionsOf(command)), ", ");
  }
  const std::string all = absl::StrJoin(unexpected, " ");
  if (FindSubcommand(app, first) != nullptr) {
    return StrCat(app.get_name(), " ", all);
  }
  const bool of_job = command.get_option_no_throw("--job") != nullptr;
  if (of_job && !HasPlaces(command) && unexpected.size() == 1) {
    return StrCat(words, " --job ", all);
  }
  return "";
}

}  // namespace

const CLI::App* FindSubcommand(const CLI::App& app, const std::string& name) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  const auto found = std::ranges::find(commands, name, &CLI::App::get_name);
  return found == commands.end() ? nullptr : *found;
}

std::string UnknownCommand(const CLI::App& app,
                           const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string before = app.get_name();
  for (const std::string& word : words) {
    if (IsFlag(word)) return "";
    const CLI::App* next = FindSubcommand(*command, word);
    // Where commands below it are optional, the word is an argument.
    const bool must_be = command->get_require_subcommand_min() > 0;
    if (next == nullptr) return must_be ? Unknown(*command, before, word) : "";
    StrAppend(&before, " ", word);
    command = next;
  }
  return "";
}

std::string UnexpectedWords(const CLI::App& app, bool advised) {
  std::string words;
  const CLI::App* command = Chosen(app, &words);
  const std::vector<std::string> unexpected = app.remaining(/*recurse=*/true);
  if (unexpected.empty()) return "";
  const std::string meant =
      advised ? "" : MeantBy(app, *command, words, unexpected);
  return StrCat("`", words, "` does not take \"",
                absl::StrJoin(unexpected, " "), "\"; ",
                meant.empty() ? "" : StrCat("did you mean `", meant, "`? "),
                "`", words, " --help` tells its options");
}

std::string MissingCommand(const CLI::App& app) {
  std::string words;
  const CLI::App* command = Chosen(app, &words);
  if (command->get_require_subcommand_min() == 0) return "";
  return command->get_formatter()->make_help(command, words,
                                             CLI::AppFormatMode::Normal);
}

std::string FlagsOfOriginal(const CLI::App& app,
                            const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string before = app.get_name();
  std::string text;
  for (const std::string& word : words) {
    if (!IsFlag(word)) {
      const CLI::App* next = FindSubcommand(*command, word);
      if (next == nullptr) continue;
      command = next;
      StrAppend(&before, " ", word);
      continue;
    }
    const std::string flag = FlagOf(word);
    if (command->get_option_no_throw(flag) != nullptr) continue;
    const auto* known = std::ranges::find_if(
        kOriginalFlags,
        [&](const OriginalFlag& one) { return Lists(one.flags, flag); });
    if (known == std::end(kOriginalFlags)) continue;
    const bool here =
        command->get_option_no_throw(std::string(known->option)) != nullptr;
    // For other commands the flag may have another meaning.
    if (!here && command != &app && command->get_name() != "sweep") continue;
    StrAppend(&text, flag, " is the original Gavel's: ",
              here ? StrCat("write ", known->written)
                   : StrCat("`", before,
                            "` has no such option; see "
                            "docs/from-gavel.md, and `gavel simulate --help`"),
              "\n");
  }
  return text;
}

// ---- The command line ----

namespace {

constexpr char kDescription[] =
    "Gavel for C++: schedules training jobs over accelerators in rounds.";

constexpr char kFooter[] =
    "JOB is an id or a name. `gavel COMMAND --help` tells the options of each "
    "command.\n"
    "Exit codes: 0 done, 1 failed (the reason is on stderr), 2 a wrong command "
    "line; `run`, `wait` and `submit --wait`: of the job.";

// Takes "-- PROGRAM ARGUMENTS..." off the end of the commands that have it:
// CLI11 would read "[a,b]" as two arguments.
std::vector<std::string> TakeProgram(int* argc, char** argv) {
  if (*argc < 2) return {};
  constexpr std::string_view kCommands[] = {"doctor", "run", "shell", "submit",
                                            "tune"};
  if (std::ranges::find(kCommands, std::string_view(argv[1])) ==
      std::end(kCommands)) {
    return {};
  }
  char** const end = argv + *argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  *argc = static_cast<int>(dashes - argv);
  if (dashes == end) return {};
  return {dashes + 1, end};
}

bool IsDaemon(const std::string& command) {
  return command == "coordinator" || command == "agent";
}

// `words` with those of a daemon's configuration file.
absl::StatusOr<std::vector<std::string>> WithConfig(
    const CLI::App& app, const std::vector<std::string>& words,
    const std::vector<std::string>& typed) {
  if (words.empty() || !IsDaemon(words[0])) return words;
  absl::StatusOr<std::vector<std::string>> all =
      WithConfigFile(*app.get_subcommand(words[0]), typed);
  if (all.ok()) all->insert(all->begin(), words[0]);
  return all;
}

// Also of --help and --version, which CLI11 has as errors.
int TellWrongLine(CLI::App& app, const std::vector<std::string>& words,
                  const CLI::ParseError& error) {
  const auto type = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const bool required = type == CLI::ExitCodes::RequiredError;
  const std::string originals = FlagsOfOriginal(app, words);
  std::string unexpected;
  std::string missing;
  // A missing argument may be one that was mistyped.
  if (required || type == CLI::ExitCodes::ExtrasError) {
    unexpected = UnexpectedWords(app, /*advised=*/!originals.empty());
  }
  if (required) missing = MissingCommand(app);
  if (!unexpected.empty()) {
    std::fprintf(stderr, "gavel: %s\n", unexpected.c_str());
  } else if (!missing.empty()) {
    std::fputs(missing.c_str(), stderr);
  } else if (app.exit(error) == 0) {
    return kExitOk;
  }
  std::fputs(originals.c_str(), stderr);
  return kExitUsage;
}

}  // namespace

std::unique_ptr<CLI::App> MakeCommandLine(
    const std::string& version, std::vector<std::string> program,
    int* exit_code, const std::vector<std::string>& typed) {
  auto app = std::make_unique<CLI::App>(kDescription, "gavel");
  app->footer(kFooter);
  app->set_version_flag("--version", version);
  app->require_subcommand(1);
  AddLocalCommand(*app, exit_code);
  AddDoctorCommand(*app, program, exit_code);
  AddCoordinatorCommand(*app, typed, exit_code);
  AddAgentCommand(*app, typed, exit_code);
  AddSubmitCommands(*app, program, exit_code);
  AddShellCommand(*app, program, exit_code);
  AddClientCommands(*app, exit_code);
  AddTuneCommand(*app, std::move(program), exit_code);
  AddOperatorCommands(*app, exit_code);
  AddPolicyCommand(*app, exit_code);
  AddQueryCommands(*app, exit_code);
  AddDashboardCommand(*app, exit_code);
  AddLogsCommand(*app, exit_code);
  AddWaitCommand(*app, exit_code);
  AddHistoryCommand(*app, exit_code);
  AddUsageCommand(*app, exit_code);
  AddReplayCommand(*app, exit_code);
  AddWhatIfCommand(*app, exit_code);
  AddBackupCommands(*app, exit_code);
  AddKeyCommands(*app, exit_code);
  AddSolveCommand(*app, exit_code);
  AddProfileCommand(*app, exit_code);
  AddTraceCommand(*app, exit_code);
  AddSimulateCommand(*app, exit_code);
  AddSweepCommand(*app, exit_code);
  AddReportCommand(*app, exit_code);
  AddReproduceCommand(*app, exit_code);
  AddHelpCommands(*app, exit_code);
  return app;
}

int RunCommandLine(const std::string& version, int argc, char** argv) {
  int exit_code = kExitOk;
  std::vector<std::string> program = TakeProgram(&argc, argv);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::vector<std::string> typed(words.begin() + (words.empty() ? 0 : 1),
                                       words.end());
  const std::unique_ptr<CLI::App> app =
      MakeCommandLine(version, std::move(program), &exit_code, typed);
  // CLI11 reports an unknown command as a missing one.
  const std::string unknown = UnknownCommand(*app, words);
  if (!unknown.empty()) {
    std::fprintf(stderr, "gavel: %s\n", unknown.c_str());
    return kExitUsage;
  }
  absl::StatusOr<std::vector<std::string>> all = WithConfig(*app, words, typed);
  if (!all.ok()) return DaemonExitCodeOf(all.status());
  std::ranges::reverse(*all);  // as CLI11 wants them
  try {
    app->parse(*std::move(all));
  } catch (const CLI::ParseError& error) {
    return TellWrongLine(*app, words, error);
  }
  return exit_code;
}

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
std::string QuotedForShell(const std::string& text) {
  return StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// NAME:DESCRIPTION, as _describe reads it.
std::string Described(const std::string& name, const std::string& meaning) {
  return QuotedForShell(
      StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", meaning));
}

std::string BashFunction(const std::string& name, const std::string& cases) {
  return StrCat(name, "() {\n  case $1 in\n", cases, "  esac\n}\n");
}

std::string BashCase(const std::string& at,
                     const std::vector<std::string>& words) {
  if (words.empty()) return "";
  return StrCat("    ", QuotedForShell(at), ") echo ",
                QuotedForShell(absl::StrJoin(words, " ")), " ;;\n");
}

std::string ZshFunction(const std::string& name, const std::string& array,
                        const std::string& cases) {
  return StrCat(name, "() {\n  ", array, "=()\n  case $1 in\n", cases,
                "  esac\n}\n");
}

std::string ZshCase(const std::string& at, const std::string& array,
                    const std::vector<std::string>& words) {
  if (words.empty()) return "";
  return StrCat("    ", QuotedForShell(at), ") ", array, "=(",
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
          all.push_back(QuotedForShell(value));
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
