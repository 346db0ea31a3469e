// The names of commands. Subcommands of `gavel`, the audit log and the texts of
// events use the same ones.
#ifndef GAVEL_CORE_COMMAND_NAME_H_
#define GAVEL_CORE_COMMAND_NAME_H_

#include <cstddef>
#include <string_view>

#include "core/messages.h"

namespace gavel {

// In the order of CommandKind.
inline constexpr std::string_view kCommandNames[] = {
    "cancel", "release", "shutdown", "hold",   "requeue", "checkpoint",
    "update", "drain",   "resume",   "forget", "policy"};

constexpr std::string_view CommandName(CommandKind kind) {
  return kCommandNames[static_cast<size_t>(kind)];
}

}  // namespace gavel

#endif  // GAVEL_CORE_COMMAND_NAME_H_
