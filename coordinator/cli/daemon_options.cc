#include "coordinator/cli/daemon_options.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/server/audit_log.h"
#include "coordinator/workload/file_keys.h"
#include "coordinator/workload/json_fields.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace gavel {

// ---- How to schedule ----

namespace {

// As many as Gavel's own table has models.
constexpr int kReferenceModels = 26;
constexpr size_t kClusterThroughputBytesMax = size_t{256} << 20;

std::string LongEnough(const std::string& text) {
  const std::string wrong = CheckAboveZero(text);
  if (!wrong.empty()) return wrong;
  if (std::strtod(text.c_str(), nullptr) >= kRoundDurationMin_s) return "";
  return StrCat(text, " s is too short; give at least ", kRoundDurationMin_s);
}

}  // namespace

void AddSchedulingFlags(CLI::App& command, SchedulingFlags* flags) {
  const auto seconds =
      [&](const char* name, std::optional<double>* value, const char* help,
          std::string (*check)(const std::string&) = CheckAboveZero) {
        AddOption(command, name, *value, "SECONDS", help)->check(check);
      };
  AddOption(command, "--policy", flags->policy, "",
            "max_min_fairness_perf (default), fifo, ...; a name that does not "
            "exist lists them all");
  AddOption(command, "--mechanism", flags->mechanism, "",
            "gavel (default), or move_aware: moves are weighed");
  AddOption(command, "--queue", flags->queue, "",
            "global (default), or per_type");
  AddOption(command, "--throughputs", flags->throughputs, "",
            "Gavel's throughput file, for job types and pairs");
  AddOption(command, "--reference-models", flags->reference_models, "",
            "a job whose type the throughput file lacks is taken to be as the "
            "one of so many that it is most like; 0: as none (default 26)")
      ->check(CLI::Range(0, 100'000));
  AddOption(command, "--profiling-percentage", flags->profiling_percentage, "",
            "at most this part of a type's accelerators, but one, runs jobs "
            "and pairs on trial that nobody has measured there (default 50); "
            "0: none")
      ->check(CLI::Range(0.0, 100.0));
  command.add_flag("--introspection", flags->introspection,
                   "whatever the policy, jobs are tried beside others and "
                   "elsewhere, and what does not help is undone");
  seconds("--round-duration", &flags->round_duration_s,
          "length of a round, from 0.1 on (default 360)", LongEnough);
  seconds("--lease-duration", &flags->lease_duration_s,
          "length of a lease, from 0.1 on (default 60, at most a round)",
          LongEnough);
  seconds("--start-timeout", &flags->start_timeout_s,
          "for a worker to start, before its process is ended, while no bytes "
          "are read; a job's start_timeout_s counts more (default 120)");
  seconds("--pause-grace", &flags->pause_grace_s,
          "for a worker to pause, before its process is ended, while no bytes "
          "are written; a job's pause_grace_s counts more (default 60)");
  seconds("--stop-grace", &flags->stop_grace_s,
          "between SIGTERM and SIGKILL (default 10)");
  AddOption(command, "--hang-timeout", flags->hang_timeout_s, "SECONDS",
            "a worker that makes no step and passes no boundary for this long, "
            "and for 100 of its steps, is ended and started again; a job's "
            "hang_timeout_s counts more; 0: never (default 600)")
      ->check(CLI::Range(0.0, 1e9));
  AddOption(command, "--interactive-max", flags->interactive_max, "",
            "accelerators that the interactive jobs of one owner may have at "
            "once; 0: no such jobs (default 2)")
      ->check(CLI::Range(0, 100'000));
  seconds("--agent-timeout", &flags->agent_timeout_s,
          "a silent agent is unreachable after this long (default 15)");
}

namespace {

// Looks up the mechanism and the queue by their names, and reads the file of
// throughputs.
absl::Status ReadMechanism(const SchedulingSpec& spec, EngineOptions& engine) {
  const auto mechanism = FindMechanism(spec.mechanism);
  if (!mechanism.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("mechanism \"", spec.mechanism,
               "\" does not exist; choose gavel or move_aware"));
  }
  const auto queue = FindQueue(spec.queue);
  if (!queue.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("queue \"", spec.queue,
               "\" does not exist; choose global or per_type"));
  }
  engine.mechanism = *mechanism;
  engine.queue = *queue;
  engine.reset_interval_s = spec.reset_interval_s;
  engine.placement_sensitive = spec.placement_sensitive;
  engine.introspection = spec.introspection;
  for (const TraceEntity& entity : spec.entities) {
    engine.entities.push_back({entity.name, entity.weight, entity.policy});
  }
  if (spec.throughputs.empty()) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(
      const std::string json,
      ReadFile(spec.throughputs, kClusterThroughputBytesMax));
  GAVEL_ASSIGN_OR_RETURN(ThroughputTable table,
                         ThroughputTable::Parse(json, spec.throughputs));
  engine.throughputs =
      std::make_shared<const ThroughputTable>(std::move(table));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Scheduling> MergeScheduling(const SchedulingSpec& spec,
                                           const SchedulingFlags& flags) {
  Scheduling merged;
  merged.policy = flags.policy.value_or(spec.policy);
  merged.prices = spec.prices;
  EngineOptions& engine = merged.engine;
  SchedulingSpec named = spec;
  named.mechanism = flags.mechanism.value_or(spec.mechanism);
  named.queue = flags.queue.value_or(spec.queue);
  named.throughputs = flags.throughputs.value_or(spec.throughputs);
  GAVEL_RETURN_IF_ERROR(ReadMechanism(named, engine));
  engine.round_duration_s =
      flags.round_duration_s.value_or(spec.round_duration_s);
  engine.lease_duration_s = flags.lease_duration_s.value_or(
      std::min(spec.lease_duration_s, engine.round_duration_s));
  engine.introspection |= flags.introspection;
  engine.reference_models = flags.reference_models.value_or(kReferenceModels);
  engine.profiling_percentage =
      flags.profiling_percentage.value_or(engine.profiling_percentage);
  engine.launch_timeout_s =
      flags.start_timeout_s.value_or(engine.launch_timeout_s);
  engine.pause_grace_s = flags.pause_grace_s.value_or(engine.pause_grace_s);
  engine.stop_grace_s = flags.stop_grace_s.value_or(engine.stop_grace_s);
  engine.hang_timeout_s = flags.hang_timeout_s.value_or(engine.hang_timeout_s);
  engine.interactive_max =
      flags.interactive_max.value_or(engine.interactive_max);
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
  // Root has one directory, whatever its environment says: with two, an
  // accelerator could have two owners.
  if (geteuid() == 0) return "/run/gavel";
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return StrCat(runtime, "/gavel");
  return StrCat("/tmp/gavel-", getuid());
}

// ---- The configuration file ----

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

// The argument that stands for the key; empty for a flag that is off.
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

// ---- The log ----

namespace {

constexpr char kPattern[] = "%Y-%m-%d %H:%M:%S.%e %l %v";

// "2026-01-31T12:00:00.250Z"
std::string UtcText(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      time.time_since_epoch())
                      .count() %
                  1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03dZ",
                static_cast<int>(ms));
  return StrCat(text.data(), fraction.data());
}

std::string JsonLine(std::chrono::system_clock::time_point time,
                     const std::string& level, const std::string& message) {
  const Json json = {
      {"time", UtcText(time)}, {"level", level}, {"message", message}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true,
                   Json::error_handler_t::replace) +
         "\n";
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message,
              spdlog::memory_buf_t& line) override {
    const spdlog::string_view_t level =
        spdlog::level::to_string_view(message.level);
    const std::string text =
        JsonLine(message.time, std::string(level.data(), level.size()),
                 std::string(message.payload.data(), message.payload.size()));
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

class LineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LineSink(Descriptor to)
      : to_(std::move(to)), lines_(WriteTo(to_.get())) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (const uint64_t lost = lines_.TakeLost(); lost > 0) {
      const std::string text =
          StrCat(lost, " lines of this log are lost: what takes them is slow");
      Put({message.logger_name, spdlog::level::warn, text});
    }
    Put(message);
  }
  void flush_() override {}

  // Texts of others, an agent's reasons say, make no lines of their own, nor
  // write to a terminal.
  void Put(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string text(line.data(), line.size());
    std::for_each(text.begin(), text.end() - 1, [](char& c) {
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    });
    lines_.Append(std::move(text));
  }

  Descriptor to_;
  LineThread lines_;
};

}  // namespace

void AddDaemonLogFlags(CLI::App& command, LogOptions* options) {
  AddOption(command, "--log-format", options->format, "",
            "of the log on stderr: text, or json (time, level, message)")
      ->check(CLI::IsMember({"text", "json"}));
  AddOption(command, "--log-level", options->level, "",
            "the least that is logged: debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
}

void SetLogLevel(spdlog::logger& log, const std::string& level) {
  const spdlog::level::level_enum least = spdlog::level::from_str(level);
  log.set_level(least == spdlog::level::off ? spdlog::level::info : least);
}

std::shared_ptr<spdlog::logger> MakeLog(Descriptor to,
                                        const LogOptions& options) {
  auto log = std::make_shared<spdlog::logger>(
      "gavel", std::make_shared<LineSink>(std::move(to)));
  SetLogLevel(*log, options.level);
  if (options.format == "json") {
    log->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    log->set_pattern(kPattern);
  }
  return log;
}

std::shared_ptr<spdlog::logger> MakeStderrLog(const LogOptions& options) {
  return MakeLog(Descriptor(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)), options);
}

absl::StatusOr<std::shared_ptr<spdlog::logger>> MakeFileLog(
    const std::string& path) {
  Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("log file ", path)));
  }
  return MakeLog(std::move(file), {});
}

int DaemonCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUsage;
    case absl::StatusCode::kAlreadyExists:
      return kExitAlreadyRuns;
    case absl::StatusCode::kAborted:
      return kExitFenced;
    case absl::StatusCode::kResourceExhausted:
      return kExitDiskFull;
    case absl::StatusCode::kDataLoss:
      return kExitDamaged;
    default:
      return kExitFailed;
  }
}

int TellEnd(const absl::Status& status, const LogOptions& options) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  const std::string message(status.message());
  const std::string line =
      options.format == "json"
          ? JsonLine(std::chrono::system_clock::now(), "critical", message)
          : StrCat("gavel: ", message, "\n");
  std::fputs(line.c_str(), stderr);
  return DaemonCodeOf(status);
}

}  // namespace gavel
