#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "coordinator/command/command_pages.h"
#include "core/text.h"

namespace gavel {
namespace {

// Text as roff shows it: hyphens stay hyphens, and no line is a request.
std::string Roff(const std::string& text) {
  const std::string escaped =
      absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  const bool request =
      !escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'');
  return request ? "\\&" + escaped : escaped;
}

std::string Bold(const std::string& text) {
  return StrCat("\\fB", Roff(text), "\\fR");
}

std::string Slanted(const std::string& text) {
  return StrCat("\\fI", Roff(text), "\\fR");
}

std::string PageName(const std::string& words) {
  return absl::StrReplaceAll(words, {{" ", "-"}});
}

std::string ArgumentOf(const CommandOption& option) {
  return option.argument.empty() ? "" : " " + Slanted(option.argument);
}

std::string Synopsis(const Command& command) {
  std::string text = Bold(command.words);
  if (!command.commands.empty()) {
    return StrCat(text, " ", Slanted("COMMAND"), " ...");
  }
  bool some = false;
  for (const CommandOption& option : command.options) {
    if (option.names.empty()) continue;
    if (option.required) {
      StrAppend(&text, " ", Bold(option.names.front()), ArgumentOf(option));
    }
    some |= !option.required;
  }
  if (some) StrAppend(&text, " [", Slanted("OPTIONS"), "]");
  for (const CommandOption& option : command.options) {
    if (option.place.empty()) continue;
    const std::string one = StrCat(
        Slanted(option.argument.empty() ? option.place : option.argument),
        option.repeated ? " ..." : "");
    StrAppend(&text, " ", option.required ? one : StrCat("[", one, "]"));
  }
  return text;
}

// What follows the description in the text of an option.
std::string Remarks(const CommandOption& option) {
  std::string text;
  if (!option.values.empty()) {
    StrAppend(&text, " One of ", absl::StrJoin(option.values, ", "), ".");
  }
  if (!option.default_value.empty()) {
    StrAppend(&text, " Default: ", option.default_value, ".");
  }
  if (!option.variable.empty()) {
    StrAppend(&text, " Also from the environment, as ", option.variable, ".");
  }
  return text;
}

std::string OptionText(const CommandOption& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(Bold(name));
  if (names.empty()) names.push_back(Slanted(option.place));
  return StrCat(".TP\n", absl::StrJoin(names, ", "), ArgumentOf(option), "\n",
                Roff(StrCat(option.meaning, option.meaning.empty() ? "" : ".",
                            Remarks(option))),
                "\n");
}

std::string SeeAlso(const Command& command) {
  std::vector<std::string> pages;
  for (const std::string& below : command.commands) {
    pages.push_back(
        StrCat(Bold(PageName(StrCat(command.words, " ", below))), "(1)"));
  }
  const size_t last = command.words.rfind(' ');
  if (last != std::string::npos) {
    pages.push_back(
        StrCat(Bold(PageName(command.words.substr(0, last))), "(1)"));
  }
  return StrCat(".SH SEE ALSO\n", absl::StrJoin(pages, ",\n"), "\n");
}

std::string PageText(const Command& command, const std::string& version) {
  const std::string name = PageName(command.words);
  std::string text = StrCat(
      ".TH \"", absl::AsciiStrToUpper(Roff(name)), "\" 1 \"\" \"",
      Roff(version), "\" \"Gavel for C++\"\n.SH NAME\n", Roff(name), " \\- ",
      Roff(command.meaning), "\n.SH SYNOPSIS\n", Synopsis(command), "\n");
  if (!command.commands.empty()) {
    StrAppend(&text, ".SH COMMANDS\n", Bold(command.words),
              Roff(" COMMAND --help"), " tells the options of each:\n",
              Roff(absl::StrJoin(command.commands, ", ")), ".\n");
  }
  if (!command.options.empty()) text += ".SH OPTIONS\n";
  for (const CommandOption& option : command.options) {
    text += OptionText(option);
  }
  text += ".SH NOTES\n";
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(command.footer, '\n'))) {
    StrAppend(&text, ".PP\n", Roff(line), "\n");
  }
  return text + SeeAlso(command);
}

}  // namespace

std::vector<ManPage> MakeManPages(const std::vector<Command>& commands,
                                  const std::string& version) {
  std::vector<ManPage> pages;
  for (const Command& command : commands) {
    pages.push_back(
        {PageName(command.words) + ".1", PageText(command, version)});
  }
  return pages;
}

}  // namespace gavel
