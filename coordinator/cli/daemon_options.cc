#include "coordinator/cli/daemon_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include "CLI/CLI.hpp"
#include "core/text.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

constexpr char kPattern[] = "%Y-%m-%d %H:%M:%S.%e %l %v";

// Parsed already; CLI11's own check would print the largest double there is.
std::string AboveZero(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = end != text.c_str() && *end == '\0' && value > 0 &&
                    value < std::numeric_limits<double>::infinity();
  return good ? "" : StrCat(text, " is not a number of seconds above 0");
}

}  // namespace

void AddSchedulingFlags(CLI::App& command, SchedulingFlags* flags) {
  const auto seconds = [&](const char* name, std::optional<double>* value,
                           const char* help) {
    command.add_option(name, *value, help)
        ->type_name("SECONDS")
        ->check(AboveZero);
  };
  command.add_option("--policy", flags->policy,
                     "max_min_fairness_perf (default), max_min_fairness, fifo");
  seconds("--round-duration", &flags->round_duration_s,
          "length of a round (default 360)");
  seconds("--lease-duration", &flags->lease_duration_s,
          "length of a lease (default 60, at most a round)");
  seconds("--pause-grace", &flags->pause_grace_s,
          "for a worker to pause, before its process is ended (default 60)");
  seconds("--stop-grace", &flags->stop_grace_s,
          "between SIGTERM and SIGKILL (default 10)");
  seconds("--agent-timeout", &flags->agent_timeout_s,
          "a silent agent is unreachable after this long (default 15)");
}

absl::StatusOr<Scheduling> MergeScheduling(const SchedulingSpec& spec,
                                           const SchedulingFlags& flags) {
  Scheduling merged;
  merged.policy = flags.policy.value_or(spec.policy);
  EngineOptions& engine = merged.engine;
  engine.round_duration_s =
      flags.round_duration_s.value_or(spec.round_duration_s);
  engine.lease_duration_s = flags.lease_duration_s.value_or(
      std::min(spec.lease_duration_s, engine.round_duration_s));
  engine.pause_grace_s = flags.pause_grace_s.value_or(engine.pause_grace_s);
  engine.stop_grace_s = flags.stop_grace_s.value_or(engine.stop_grace_s);
  engine.agent_timeout_s =
      flags.agent_timeout_s.value_or(engine.agent_timeout_s);
  engine.heartbeat_interval_s =
      std::min(engine.heartbeat_interval_s, engine.agent_timeout_s / 4);
  if (engine.lease_duration_s > engine.round_duration_s) {
    return absl::InvalidArgumentError(
        StrCat("a lease of ", engine.lease_duration_s,
               " s exceeds the round of ", engine.round_duration_s,
               " s; lower --lease-duration or lengthen the round"));
  }
  return merged;
}

std::string DefaultRunDirectory(
    const std::vector<AcceleratorInfo>& accelerators) {
  const bool any_gpu = std::ranges::any_of(
      accelerators, [](const auto& info) { return info.device != "cpu"; });
  if (!any_gpu) return "";
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return StrCat(runtime, "/gavel");
  return StrCat("/tmp/gavel-", getuid());
}

std::shared_ptr<spdlog::logger> MakeStderrLog() {
  auto log = std::make_shared<spdlog::logger>(
      "gavel", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->set_pattern(kPattern);
  return log;
}

absl::StatusOr<std::shared_ptr<spdlog::logger>> MakeFileLog(
    const std::string& path) {
  try {
    auto log = std::make_shared<spdlog::logger>(
        "gavel", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
    log->set_pattern(kPattern);
    log->flush_on(spdlog::level::info);
    return log;
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InternalError(StrCat("log file ", path, ": ", error.what()));
  }
}

}  // namespace gavel
