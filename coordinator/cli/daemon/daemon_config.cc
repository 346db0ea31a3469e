#include "coordinator/cli/daemon/daemon_config.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr std::string_view kConfig = "config";

// "--state" and "--state=/var/lib/gavel".
bool Names(const std::string& argument, std::string_view key) {
  const std::string option = StrCat("--", key);
  return argument == option || argument.starts_with(option + "=");
}

bool IsTyped(const std::vector<std::string>& typed, std::string_view key) {
  return std::ranges::any_of(
      typed, [&](const std::string& word) { return Names(word, key); });
}

std::string ConfigPath(const std::vector<std::string>& typed) {
  const std::string option = StrCat("--", kConfig);
  for (size_t i = 0; i < typed.size(); ++i) {
    if (typed[i].starts_with(option + "=")) {
      return typed[i].substr(option.size() + 1);
    }
    if (typed[i] == option && i + 1 < typed.size()) return typed[i + 1];
  }
  return "";
}

std::string TextOf(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* integer = value.as_integer()) return StrCat(integer->get());
  if (const auto* number = value.as_floating_point()) {
    return StrCat(number->get());
  }
  return "";
}

// What the key says as an argument; empty: a flag that is off.
std::string ArgumentOf(TomlReader& reader, const CLI::Option& option,
                       const std::string& key, const toml::node& value) {
  const bool is_flag = option.get_items_expected_max() == 0;
  if (is_flag != value.is_boolean()) {
    reader.Fail(key, is_flag ? StrCat(key, " is true or false")
                             : StrCat(key, " has a value; see --", key,
                                      " in the command's --help"));
    return "";
  }
  if (is_flag) return value.as_boolean()->get() ? StrCat("--", key) : "";
  const std::string text = TextOf(value);
  if (text.empty() && !value.is_string()) {
    reader.Fail(key, StrCat(key, " is a text or a number"));
  }
  return StrCat("--", key, "=", text);
}

// The names of its long options that a file may have.
std::vector<std::string> KeysOf(const CLI::App& command) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const bool of_one_start = name == kConfig || name == "accept-loss" ||
                                name == "help" || name == "help-all";
      if (!of_one_start) keys.push_back(name);
    }
  }
  return keys;
}

}  // namespace

void AddConfigFlag(CLI::App& command, std::string* path) {
  AddOption(command, StrCat("--", kConfig), *path, "FILE",
            "TOML file with these options as keys (state = \"...\"); what is "
            "typed here counts more. Read again on SIGHUP");
}

absl::StatusOr<std::vector<std::string>> WithConfigFile(
    const CLI::App& command, const std::vector<std::string>& typed) {
  const std::string path = ConfigPath(typed);
  if (path.empty()) return typed;
  GAVEL_ASSIGN_OR_RETURN(const auto text, ReadFile(path, kConfigBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const toml::table table,
                         ParseToml(text, path, kConfigBytesMax));
  const std::vector<std::string> names = KeysOf(command);
  std::vector<FileKey> keys;
  for (const std::string& name : names) keys.push_back({name});
  absl::Status status;
  TomlReader reader(table, path, keys, status);
  GAVEL_RETURN_IF_ERROR(status);
  std::vector<std::string> all = typed;
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    const CLI::Option* option = command.get_option_no_throw(StrCat("--", name));
    if (option == nullptr || IsTyped(typed, name)) continue;
    const std::string argument = ArgumentOf(reader, *option, name, value);
    GAVEL_RETURN_IF_ERROR(status);
    if (!argument.empty()) all.push_back(argument);
  }
  return all;
}

namespace {

// "gavel.toml:3:1: " where the text is about an option that the file has.
std::string PlaceOf(const std::vector<std::string>& typed,
                    const std::string& text) {
  const std::string path = ConfigPath(typed);
  if (path.empty()) return "";
  const absl::StatusOr<std::string> file = ReadFile(path, kConfigBytesMax);
  if (!file.ok()) return "";
  const absl::StatusOr<toml::table> table =
      ParseToml(*file, path, kConfigBytesMax);
  if (!table.ok()) return "";
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    if (IsTyped(typed, name)) continue;
    if (!text.starts_with(StrCat("--", name, ":")) &&
        text.find(StrCat("--", name, " ")) == std::string::npos) {
      continue;
    }
    const toml::source_position& begin = key.source().begin;
    return StrCat(path, ":", begin.line, ":", begin.column, ": ");
  }
  return "";
}

// "--state=/var" of an option that is not typed as two words.
std::string KeyOf(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (!argument.starts_with("--")) return "";
  return argument.substr(2, equals == std::string::npos ? equals : equals - 2);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseAgain(
    CLI::App& command, const std::vector<std::string>& typed) {
  GAVEL_ASSIGN_OR_RETURN(const auto all, WithConfigFile(command, typed));
  std::vector<std::string> reversed(all.rbegin(), all.rend());  // for CLI11
  try {
    command.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(
        ToAbsl(StrCat(PlaceOf(typed, error.what()), error.what())));
  }
  return all;
}

std::vector<std::string> ChangedKeys(const std::vector<std::string>& before,
                                     const std::vector<std::string>& now,
                                     const std::vector<std::string>& reloaded) {
  std::vector<std::string> changed;
  const auto add = [&](const std::vector<std::string>& from,
                       const std::vector<std::string>& other) {
    for (const std::string& argument : from) {
      const std::string key = KeyOf(argument);
      if (key.empty() || std::ranges::count(other, argument) > 0) continue;
      if (std::ranges::count(reloaded, key) > 0) continue;
      if (std::ranges::count(changed, key) == 0) changed.push_back(key);
    }
  };
  add(now, before);
  add(before, now);
  return changed;
}

}  // namespace gavel
