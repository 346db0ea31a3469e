#include "coordinator/server/access/principals.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/text_file.h"
#include "runtime/transport/curve.h"

namespace gavel {
namespace {

absl::Status Errno(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(StrCat("principals file ", path)));
}

void ReadAllowance(TomlReader& reader, Allowance& allowance) {
  reader.Read("entities", allowance.entities);
  for (const std::string& entity : allowance.entities) {
    if (IsValidName(entity)) continue;
    reader.Fail("entities", StrCat(QuoteToml(entity),
                                   " is no name; write 1 to 64 of A-Z, a-z, "
                                   "0-9, _ and -"));
  }
  constexpr NumberRange kWeight = {.min = 0.001, .max = 1000};
  reader.Read("weight", allowance.weight, kWeight);
  reader.Read("weight_max", allowance.weight_max, kPositive);
}

Principal ReadPrincipal(TomlReader reader) {
  Principal principal;
  reader.Require("role", "role = \"user\"");
  reader.Require("public_key", "the key that `gavel keygen` printed");
  std::string role;
  if (reader.Read("role", role)) {
    if (const std::optional<Role> found = FindRole(role)) {
      principal.role = *found;
    } else {
      reader.Fail("role", StrCat("there is no role ", QuoteToml(role),
                                 "; choose user, operator, viewer or node"));
    }
  }
  if (reader.Read("public_key", principal.public_key) &&
      !IsCurveKey(principal.public_key)) {
    reader.Fail("public_key",
                "this is no public key; write the 40 characters that `gavel "
                "keygen` printed");
  }
  reader.Read("unix_user", principal.unix_user);
  if (!MayRunJobs(principal.unix_user)) {
    reader.Fail("unix_user",
                "jobs do not run as root; name an ordinary user of the "
                "servers");
  }
  if (RunsJobs(principal.role) && principal.unix_user.empty()) {
    reader.Require("unix_user", "unix_user = \"alice\"");
  }
  ReadAllowance(reader, principal.allowance);
  return principal;
}

// Whoever may write the file may make himself an operator.
absl::Status CheckOwner(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return Errno(path);
    return absl::NotFoundError(
        StrCat("there is no principals file ", path,
               ", so nobody could connect; make it with `gavel user add "
               "--principals ",
               path, "`"));
  }
  const bool ours = info.st_uid == geteuid() || info.st_uid == 0;
  if (ours && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      StrCat("principals file ", path,
             " may be written by others; chmod 600 it, and see that its "
             "owner is root or the coordinator's user"));
}

// Only what is not the default.
std::string FormatAllowance(const Allowance& allowance) {
  std::string toml;
  const Allowance usual;
  if (!allowance.entities.empty()) {
    std::vector<std::string> names;
    for (const std::string& entity : allowance.entities) {
      names.push_back(QuoteToml(entity));
    }
    StrAppend(&toml, "entities = [", absl::StrJoin(names, ", "), "]\n");
  }
  if (allowance.weight != usual.weight) {
    absl::StrAppendFormat(&toml, "weight = %.17g\n", allowance.weight);
  }
  if (allowance.weight_max != usual.weight_max) {
    absl::StrAppendFormat(&toml, "weight_max = %.17g\n", allowance.weight_max);
  }
  return toml;
}

}  // namespace

absl::StatusOr<Principals> ParsePrincipals(std::string_view toml,
                                           std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(toml, source, kPrincipalsBytesMax));
  absl::Status status;
  TomlReader reader(root, source, status);
  Principals principals;
  std::set<std::string> keys;
  for (const std::string& name : reader.Keys()) {
    if (!IsValidName(name)) {
      reader.Fail(name, StrCat(QuoteToml(name),
                               " is no name; write 1 to 64 of A-Z, a-z, 0-9, _ "
                               "and -"));
    }
    const toml::table* const table = reader.Table(name);
    if (table == nullptr) continue;
    const Principal& read =
        principals
            .emplace(name, ReadPrincipal(
                               TomlReader(*table, source,
                                          {"role", "unix_user", "public_key",
                                           "entities", "weight", "weight_max"},
                                          status)))
            .first->second;
    if (!keys.insert(read.public_key).second) {
      reader.Fail(name, StrCat(QuoteToml(name),
                               " has the key of another principal; give each "
                               "its own (`gavel keygen`)"));
    }
  }
  GAVEL_RETURN_IF_ERROR(status);
  return principals;
}

std::string FormatPrincipals(const Principals& principals) {
  std::string toml =
      "# Who may connect, as what. Written by `gavel user`; read again by the\n"
      "# coordinator whenever it changes.\n";
  for (const auto& [name, principal] : principals) {
    StrAppend(&toml, "\n[", name,
              "]\nrole = ", QuoteToml(RoleName(principal.role)), "\n");
    if (!principal.unix_user.empty()) {
      StrAppend(&toml, "unix_user = ", QuoteToml(principal.unix_user), "\n");
    }
    StrAppend(&toml, "public_key = ", QuoteToml(principal.public_key), "\n",
              FormatAllowance(principal.allowance));
  }
  return toml;
}

absl::StatusOr<Principals> ReadPrincipals(const std::string& path) {
  GAVEL_RETURN_IF_ERROR(CheckOwner(path));
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Errno(path);
  return ParsePrincipals(text.str(), path);
}

absl::Status WritePrincipals(const std::string& path,
                             const Principals& principals) {
  return ReplaceFile(path, FormatPrincipals(principals));
}

}  // namespace gavel
