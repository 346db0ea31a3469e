#include <algorithm>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "coordinator/command/command_pages.h"
#include "coordinator/policy/policy.h"

namespace gavel {
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

}  // namespace gavel
