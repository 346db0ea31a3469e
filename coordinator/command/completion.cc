#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "coordinator/command/command_pages.h"
#include "core/text.h"

namespace gavel {
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

// What may follow the command: commands below it, or values of an argument; a
// COMMAND is one of the program's.
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

// Of a command; empty: it is a value.
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

}  // namespace gavel
