#include "coordinator/cli/keys.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/server/audit_log.h"
#include "coordinator/server/principals.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/files/files.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {

// ---- Where keys are looked for ----

namespace {

constexpr char kSystemDirectory[] = "/etc/gavel";

std::string HomeDirectory() {
  const char* const home = std::getenv("HOME");
  return home == nullptr || *home != '/' ? "" : StrCat(home, "/.config/gavel");
}

}  // namespace

std::string OwnKeyDirectory() {
  const std::string home = HomeDirectory();
  return geteuid() == 0 || home.empty() ? kSystemDirectory : home;
}

std::string FindKeyFile(const std::string& name) {
  for (const std::string& directory :
       {HomeDirectory(), std::string(kSystemDirectory)}) {
    const std::string path = StrCat(directory, "/", name);
    std::error_code ignored;
    if (!directory.empty() && std::filesystem::exists(path, ignored)) {
      return path;
    }
  }
  return StrCat(OwnKeyDirectory(), "/", name);
}

void AddKeyFlags(CLI::App& command, KeyFlags* flags) {
  AddOption(command, "--key", flags->key_file, "FILE",
            "file of the key to connect with; beyond this machine looked for "
            "in ~/.config/gavel and /etc/gavel")
      ->envname("GAVEL_KEY_FILE");
  AddOption(command, "--coordinator-key", flags->coordinator_key, "KEY",
            "the coordinator's public key, or its file; looked for likewise, "
            "as coordinator.pub")
      ->envname("GAVEL_COORDINATOR_KEY");
}

absl::StatusOr<std::optional<CurveClient>> FindClientKeys(
    const std::string& endpoint, const KeyFlags& flags,
    const std::string& name) {
  GAVEL_RETURN_IF_ERROR(CheckEndpoint(endpoint));
  if (flags.key_file.empty() && IsLoopback(endpoint)) return std::nullopt;
  CurveClient client;
  GAVEL_ASSIGN_OR_RETURN(
      client.own,
      ReadKeyFile(flags.key_file.empty() ? FindKeyFile(name) : flags.key_file));
  GAVEL_ASSIGN_OR_RETURN(client.server_public_key,
                         ReadPublicKey(flags.coordinator_key.empty()
                                           ? FindKeyFile(kCoordinatorPublicFile)
                                           : flags.coordinator_key));
  return client;
}

absl::StatusOr<std::optional<CurveKeyPair>> FindCoordinatorKeys(
    const std::string& endpoint, const std::string& key_file) {
  GAVEL_RETURN_IF_ERROR(CheckEndpoint(endpoint));
  if (key_file.empty() && IsLoopback(endpoint)) return std::nullopt;
  const std::string path =
      key_file.empty() ? FindKeyFile(kCoordinatorKeyFile) : key_file;
  absl::StatusOr<CurveKeyPair> keys = ReadKeyFile(path);
  if (keys.ok()) return *std::move(keys);
  if (!absl::IsNotFound(keys.status())) return keys.status();
  const std::filesystem::path named(path);
  const bool elsewhere = named.filename() == kCoordinatorKeyFile &&
                         !named.parent_path().empty() &&
                         named.parent_path() != OwnKeyDirectory();
  return absl::NotFoundError(StrCat(
      "there is no key file ", path,
      "; make it with `gavel keygen --coordinator",
      elsewhere ? StrCat(" --directory ", named.parent_path().string()) : "",
      "`. Without keys a coordinator listens on this machine only, and ",
      endpoint, " is beyond it"));
}

// ---- The commands keygen, user and audit ----

namespace {

using AuditJson = nlohmann::ordered_json;

absl::Status CheckName(const std::string& name) {
  if (IsValidName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "\"", name, "\" is no name; write 1 to 64 of A-Z, a-z, 0-9, _ and -"));
}

struct KeygenOptions {
  bool coordinator = false;
  std::string node;
  std::string user;
  std::string directory;  // empty: OwnKeyDirectory()
};

absl::Status Keygen(const KeygenOptions& options) {
  const std::string directory =
      options.directory.empty() ? OwnKeyDirectory() : options.directory;
  const std::string name = options.node.empty() ? options.user : options.node;
  if (!options.coordinator) {
    GAVEL_RETURN_IF_ERROR(CheckName(name));
  }
  const char* const file = options.coordinator    ? kCoordinatorKeyFile
                           : options.node.empty() ? kClientKeyFile
                                                  : kNodeKeyFile;
  GAVEL_RETURN_IF_ERROR(MakeDirectory(directory));
  GAVEL_ASSIGN_OR_RETURN(const CurveKeyPair keys, NewCurveKeyPair());
  const std::string path = StrCat(directory, "/", file);
  GAVEL_RETURN_IF_ERROR(WriteKeyFile(path, keys));
  std::printf("key %s\npublic key %s\n", path.c_str(), keys.public_key.c_str());
  if (options.coordinator) {
    const std::string shared = StrCat(directory, "/", kCoordinatorPublicFile);
    GAVEL_RETURN_IF_ERROR(WritePublicKeyFile(shared, keys.public_key));
    std::printf(
        "Copy %s to /etc/gavel/ of every server and of every machine that "
        "submits jobs.\n",
        shared.c_str());
    if (FindKeyFile(file) != path) {
      std::printf(
          "This key is not looked for there: give `gavel coordinator` --key "
          "%s\n",
          path.c_str());
    }
    return absl::OkStatus();
  }
  const bool is_node = !options.node.empty();
  // Proposes a command that `gavel user add` does not refuse.
  const bool may_run_jobs = MayRunJobs(name);
  const std::string account = may_run_jobs ? name : "ACCOUNT";
  std::printf(
      "On the coordinator's machine, as the user that it runs as: gavel user "
      "add %s --role %s%s --public-key '%s'\n",
      name.c_str(), is_node ? "node" : "user",
      is_node ? "" : StrCat(" --unix-user ", account).c_str(),
      keys.public_key.c_str());
  if (!is_node) {
    std::printf(
        "(--unix-user: the account on the servers that the jobs run as%s)\n",
        may_run_jobs ? "" : ", an ordinary one: put its name for ACCOUNT");
  }
  if (FindKeyFile(file) != path) {
    std::printf("This key is not looked for there: give `gavel %s` --key %s\n",
                is_node ? "agent" : "submit", path.c_str());
  }
  return absl::OkStatus();
}

void AddKeygen(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<KeygenOptions>(
      app, exit_code, "keygen",
      "Makes a key, of a coordinator, a server or a user", Keygen);
  CLI::Option_group& whose = *command.add_option_group("whose");
  whose.add_flag("--coordinator", options.coordinator,
                 "coordinator.key, and coordinator.pub for all others");
  AddOption(whose, "--node", options.node, "NAME",
            "node.key, of the server NAME");
  AddOption(whose, "--user", options.user, "NAME",
            "client.key, of the user NAME");
  whose.require_option(1);
  AddOption(
      command, "--directory", options.directory, "",
      "where to write it (default: /etc/gavel as root, else ~/.config/gavel)");
}

struct UserOptions {
  std::string principals;  // empty: looked for
  std::string name;
  std::string role = "user";
  std::string unix_user;
  std::string public_key;
  Allowance allowance;
  bool json = false;
};

std::string PathOf(const UserOptions& options) {
  return options.principals.empty() ? FindKeyFile(kPrincipalsFile)
                                    : options.principals;
}

// For commands that are advised: the file that was given.
std::string PrincipalsFlag(const UserOptions& options) {
  return options.principals.empty()
             ? ""
             : StrCat(" --principals ", options.principals);
}

absl::StatusOr<Principals> ReadOrEmpty(const std::string& path) {
  absl::StatusOr<Principals> principals = ReadPrincipals(path);
  if (absl::IsNotFound(principals.status())) return Principals();
  return principals;
}

// A change takes milliseconds, so this is enough for many at once.
constexpr std::chrono::seconds kOtherChangesMax(10);
constexpr std::chrono::milliseconds kLockRetry(10);

absl::StatusOr<FileLock> WaitForLock(const std::string& path) {
  const auto end = std::chrono::steady_clock::now() + kOtherChangesMax;
  while (true) {
    absl::StatusOr<FileLock> lock = FileLock::Take(path);
    if (!absl::IsAlreadyExists(lock.status())) return lock;
    if (std::chrono::steady_clock::now() > end) {
      return absl::UnavailableError(
          StrCat("another `gavel user` is at work: ", lock.status().message(),
                 "; end that one, or try again"));
    }
    std::this_thread::sleep_for(kLockRetry);
  }
}

// Changes the file under a lock, so that two changes at once are both kept.
template <class Change>
absl::Status Edit(const std::string& path, Change change) {
  GAVEL_ASSIGN_OR_RETURN(const FileLock lock, WaitForLock(path + ".lock"));
  GAVEL_ASSIGN_OR_RETURN(Principals principals, ReadOrEmpty(path));
  GAVEL_RETURN_IF_ERROR(change(&principals));
  // The new text must be readable before it replaces the file.
  GAVEL_RETURN_IF_ERROR(
      ParsePrincipals(FormatPrincipals(principals), path).status());
  return WritePrincipals(path, principals);
}

absl::Status AddUser(const UserOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckName(options.name));
  const std::optional<Role> role = FindRole(options.role);
  if (!role.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("there is no role \"", options.role,
               "\"; choose user, operator, viewer or node"));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::string public_key,
                         ReadPublicKey(options.public_key));
  if (RunsJobs(*role) && options.unix_user.empty()) {
    return absl::InvalidArgumentError(
        StrCat("--unix-user is missing: jobs of a ", options.role,
               " run as an account of the servers; give it as --unix-user ",
               MayRunJobs(options.name) ? options.name : "ACCOUNT",
               ", or choose --role viewer, which runs no jobs"));
  }
  const std::string path = PathOf(options);
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  if (!folder.empty()) {
    GAVEL_RETURN_IF_ERROR(MakeDirectory(folder.string()));
  }
  GAVEL_RETURN_IF_ERROR(Edit(path, [&](Principals* principals) {
    const bool added =
        principals
            ->try_emplace(options.name,
                          Principal{*role, options.unix_user, public_key,
                                    options.allowance})
            .second;
    if (added) return absl::OkStatus();
    return absl::AlreadyExistsError(
        StrCat(options.name, " is in ", path, " already; `gavel user revoke ",
               options.name, PrincipalsFlag(options),
               "` first to give it another key or role"));
  }));
  std::printf(
      "added %s (%s) to %s; a running coordinator knows it within a second\n",
      options.name.c_str(), options.role.c_str(), path.c_str());
  return absl::OkStatus();
}

absl::Status RevokeUser(const UserOptions& options) {
  const std::string path = PathOf(options);
  Role role = Role::kViewer;
  GAVEL_RETURN_IF_ERROR(Edit(path, [&](Principals* principals) {
    const auto found = principals->find(options.name);
    if (found == principals->end()) {
      return absl::NotFoundError(
          StrCat(options.name, " is not in ", path, "; `gavel user list",
                 PrincipalsFlag(options), "` shows who is"));
    }
    role = found->second.role;
    principals->erase(found);
    return absl::OkStatus();
  }));
  std::printf(
      "revoked %s; a running coordinator refuses its messages within a "
      "second\n",
      options.name.c_str());
  if (RunsJobs(role)) {
    std::printf(
        "Its jobs keep their places and run on until an operator cancels them: "
        "gavel queue --user %s, gavel cancel JOB\n",
        options.name.c_str());
  } else if (role == Role::kNode) {
    std::printf("Its agent ends with its workers when it hears of that\n");
  }
  return absl::OkStatus();
}

absl::Status ListUsers(const UserOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const Principals principals,
                         ReadPrincipals(PathOf(options)));
  AuditJson all = AuditJson::array();
  for (const auto& [name, principal] : principals) {
    const std::string role(RoleName(principal.role));
    all.push_back({{"name", name},
                   {"role", role},
                   {"unix_user", principal.unix_user},
                   {"public_key", principal.public_key},
                   {"entities", principal.allowance.entities},
                   {"weight", principal.allowance.weight},
                   {"weight_max", principal.allowance.weight_max}});
    if (options.json) continue;
    std::printf("%-20s %-9s %-16s %s\n", name.c_str(), role.c_str(),
                principal.unix_user.c_str(), principal.public_key.c_str());
  }
  if (options.json) std::printf("%s\n", all.dump(2).c_str());
  return absl::OkStatus();
}

void AddUserCommands(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<UserOptions>();
  CLI::App* user = app.add_subcommand(
      "user", "Who may connect to the coordinator of this machine, as what");
  user->require_subcommand(1);
  // Before the command below it and behind it.
  const auto add_principals = [&options](CLI::App* command) {
    AddOption(*command, "--principals", options->principals, "FILE",
              "the file of them; looked for in ~/.config/gavel and /etc/gavel");
  };
  const auto add_below = [&](const char* name, const char* help,
                             absl::Status (*run)(const UserOptions&)) {
    CLI::App* const command = user->add_subcommand(name, help);
    add_principals(command);
    command->callback(
        [options, exit_code, run] { *exit_code = ExitCodeOf(run(*options)); });
    return command;
  };
  add_principals(user);
  CLI::App& add = *add_below("add", "Allows a key", AddUser);
  AddOption(add, "name", options->name, "NAME",
            "of the user; of a server its name")
      ->required();
  AddOption(add, "--role", options->role, "user|operator|viewer|node",
            "user, operator, viewer or node");
  AddOption(add, "--unix-user", options->unix_user, "NAME",
            "account on the servers that the jobs run as; users and operators "
            "need one");
  AddOption(add, "--entity", options->allowance.entities, "NAME",
            "entity of the cluster that the jobs may count for, the first by "
            "default; again for each");
  AddOption(add, "--weight", options->allowance.weight, "",
            "of the user, which its active jobs divide")
      ->check(CLI::Range(0.001, 1000.0));
  AddOption(add, "--weight-max", options->allowance.weight_max, "",
            "largest weight that one of its jobs may have")
      ->check(CheckAboveZero);
  AddOption(add, "--public-key", options->public_key, "KEY",
            "as `gavel keygen` printed it")
      ->required();
  add_below("list", "Shows who may connect", ListUsers)
      ->add_flag("--json", options->json, "JSON instead of text");
  CLI::App& revoke = *add_below(
      "revoke", "Refuses a key from now on, also on open connections",
      RevokeUser);
  AddOption(revoke, "name", options->name, "NAME", "of the user or server")
      ->required();
}

struct AuditOptions {
  std::string state = kDefaultState;
  size_t last = 100;
  bool json = false;
};

std::string RenderAudit(const AuditJson& entry) {
  const auto text = [&](const char* key) { return entry.value(key, ""); };
  return absl::StrFormat("%s %-16s %-9s %-15s %s%s%s: %s", text("time"),
                         text("who"), text("role"), text("from"),
                         text("action"), text("object").empty() ? "" : " ",
                         text("object"), text("result"));
}

absl::Status ShowAudit(const AuditOptions& options) {
  const std::string path = StrCat(options.state, "/", kAuditFile);
  if (!std::ifstream(path)) {
    return absl::NotFoundError(
        StrCat(path,
               " can't be read; run this on the coordinator's machine, as its "
               "user, with its --state"));
  }
  std::deque<std::string> lines;
  for (const std::string& part : RotatedFiles(path)) {
    std::ifstream file(part);
    for (std::string line; std::getline(file, line);) {
      lines.push_back(std::move(line));
      if (lines.size() > options.last) lines.pop_front();
    }
  }
  for (const std::string& line : lines) {
    const AuditJson entry =
        AuditJson::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool shown_as_is = options.json || !entry.is_object();
    std::printf("%s\n",
                shown_as_is ? line.c_str() : RenderAudit(entry).c_str());
  }
  return absl::OkStatus();
}

void AddAudit(CLI::App& app, int* exit_code) {
  auto [command, options] =
      AddCommand<AuditOptions>(app, exit_code, "audit",
                               "Shows who did what to the coordinator of this "
                               "machine, and what was refused",
                               ShowAudit);
  AddOption(command, "--state", options.state, "", "the coordinator's");
  AddOption(command, "--last", options.last, "", "that many entries");
  command.add_flag("--json", options.json, "lines of JSON");
}

}  // namespace

void AddKeyCommands(CLI::App& app, int* exit_code) {
  AddKeygen(app, exit_code);
  AddUserCommands(app, exit_code);
  AddAudit(app, exit_code);
}

}  // namespace gavel
