#include "coordinator/workload/cluster_spec.h"

#include <algorithm>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "coordinator/workload/file_keys.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

// ---- The keys ----

namespace {

constexpr double kRoundMax_s = 30 * 24 * 3600;
constexpr NumberRange kRoundLength = {.min = kRoundDurationMin_s,
                                      .max = kRoundMax_s};

// "cpu" or KIND:N, N without signs or leading zeros.
bool IsValidDevice(std::string_view device) {
  if (device == "cpu") return true;
  for (const std::string_view kind : {"cuda:", "xpu:", "hpu:"}) {
    int index = 0;
    if (!device.starts_with(kind)) continue;
    return absl::SimpleAtoi(ToAbsl(device.substr(kind.size())), &index) &&
           index >= 0 && device == StrCat(kind, index);
  }
  return false;
}

void CheckDevice(TomlReader& reader, std::string_view key,
                 const std::string& device) {
  if (IsValidDevice(device)) return;
  reader.Fail(key, StrCat("device is ", QuoteToml(device),
                          "; write \"cpu\" or KIND:N, as \"cuda:0\" (kinds: "
                          "cuda, xpu, hpu)"));
}

void CheckUuid(TomlReader& reader, std::string_view key,
               const std::string& uuid) {
  constexpr size_t kLeast = 9;  // not a slot of a server named "GPU"
  const bool is_gpu = uuid.starts_with("GPU-") || uuid.starts_with("MIG-");
  if (!is_gpu || uuid.size() < kLeast || !IsValidName(uuid)) {
    reader.Fail(key, StrCat("uuid is ", QuoteToml(uuid),
                            "; write it as `nvidia-smi -L` does, "
                            "\"GPU-8a1b2c3d-...\" or \"MIG-...\""));
  } else if (reader.Has("device")) {
    reader.Fail(key, "uuid and device both say which GPU it is; leave one out");
  }
}

// "NAME", or "NAME*" for all that begin so.
bool IsVariable(std::string_view text) {
  if (text.ends_with('*')) text.remove_suffix(1);
  if (text.empty() || absl::ascii_isdigit(text.front())) return false;
  return std::ranges::all_of(
      text, [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

void CheckKept(TomlReader& reader, std::string_view key,
               const std::vector<std::string>& kept) {
  for (const std::string& variable : kept) {
    if (!IsVariable(variable)) {
      reader.Fail(key, StrCat(QuoteToml(variable),
                              " is no variable's name; write it as "
                              "\"LD_LIBRARY_PATH\", or \"NCCL_*\" for all "
                              "that begin so"));
    } else if (variable.starts_with("GAVEL_")) {
      reader.Fail(key, StrCat(QuoteToml(variable),
                              " would be the agent's own; take it out"));
    }
  }
}

constexpr size_t kNotifyWordsMax = 256;
constexpr size_t kWebhookBytesMax = 2048;

void CheckNotifyCommand(TomlReader& reader, std::string_view key,
                        const std::vector<std::string>& argv) {
  if (argv.empty() || !argv[0].starts_with('/')) {
    reader.Fail(key,
                "command names no program by its whole path; write e.g. "
                "command = [\"/usr/local/bin/gavel-mail\"]");
  }
  if (argv.size() > kNotifyWordsMax) {
    reader.Fail(key, StrCat("command has ", argv.size(), " elements; write ",
                            kNotifyWordsMax, " at most"));
  }
}

void CheckWebhook(TomlReader& reader, std::string_view key,
                  const std::string& url) {
  const bool known = url.starts_with("http://") || url.starts_with("https://");
  const bool plain = std::ranges::all_of(
      url, [](char c) { return absl::ascii_isgraph(c) && c != '"'; });
  if (known && plain && url.size() <= kWebhookBytesMax) return;
  reader.Fail(key, StrCat("webhook is no address; write \"https://...\" or "
                          "\"http://...\", without blanks, of at most ",
                          kWebhookBytesMax, " bytes"));
}

void CheckEvents(TomlReader& reader, std::string_view key,
                 const std::vector<std::string>& events) {
  const std::string refusal = RefusalOfNotices(events, /*of_job=*/false);
  if (!refusal.empty()) reader.Fail(key, refusal);
}

// The content of one [[server.accelerator]]: `count` slots of the same kind.
struct AcceleratorEntry : AcceleratorInfo {
  int count = 1;
};

constexpr FileKey kClusterRows[] = {
    {.name = "scheduling",
     .kind = KeyKind::kTable,
     .otherwise = "its defaults",
     .example = R"({ policy = "fifo" })",
     .meaning = "How the coordinator schedules."},
    {.name = "server",
     .kind = KeyKind::kTables,
     .otherwise = "GPUs found through NVML",
     .example = R"([{ name = "node-1", accelerator = [{ type = "v100" }] }])",
     .meaning = "The servers and their accelerators."},
    {.name = "prices",
     .kind = KeyKind::kTable,
     .otherwise = "no prices",
     .example = "{ v100 = 2.48 }",
     .meaning = "Prices of accelerators, for policies per cost."},
    {.name = "entity",
     .kind = KeyKind::kTables,
     .otherwise = "none",
     .example = R"([{ name = "vision" }])",
     .meaning = "Organisations that jobs count for."},
    {.name = "notify",
     .kind = KeyKind::kTable,
     .otherwise = "nobody is told",
     .example = R"({ command = ["/usr/local/bin/gavel-mail"] })",
     .meaning = "Whom the coordinator tells of jobs and servers."},
};

constexpr std::tuple kSchedulingKeys = {
    Key("policy", &SchedulingSpec::policy,
        {.kind = KeyKind::kName,
         .values = "a name of `gavel solve --list-policies`",
         .default_value = R"("max_min_fairness_perf")",
         .example = R"("finish_time_fairness_perf")",
         .meaning = "Policy that divides the accelerators."}),
    Key("round_duration_s", &SchedulingSpec::round_duration_s,
        {.range = kRoundLength,
         .default_value = "360",
         .example = "120",
         .meaning = "Length of a round."}),
    Key("lease_duration_s", &SchedulingSpec::lease_duration_s,
        {.range = kRoundLength,
         .otherwise = "60, or the round when that is shorter",
         .example = "30",
         .meaning = "Length of a lease, at most `round_duration_s`."}),
    Key("mechanism", &SchedulingSpec::mechanism,
        {.kind = KeyKind::kName,
         .values = "`gavel` or `move_aware`",
         .default_value = R"("gavel")",
         .example = R"("move_aware")",
         .meaning = "How shares become rounds; `move_aware` weighs the "
                    "cost of pauses and moves."}),
    Key("queue", &SchedulingSpec::queue,
        {.kind = KeyKind::kName,
         .values = "`global` or `per_type`",
         .default_value = R"("global")",
         .example = R"("per_type")",
         .meaning = "Whether jobs are chosen by priority over all types at "
                    "once, or type by type."}),
    Key("reset_interval_s", &SchedulingSpec::reset_interval_s,
        {.range = kNotNegative,
         .default_value = "0",
         .example = "1920",
         .meaning = "Least time between two allocations; 0: at every "
                    "arrival and completion."}),
    Key("placement_sensitive", &SchedulingSpec::placement_sensitive,
        {.default_value = "false",
         .example = "true",
         .meaning = "Whether the policy knows what gangs lose that are "
                    "spread over servers."}),
    Key("introspection", &SchedulingSpec::introspection,
        {.default_value = "false",
         .example = "true",
         .meaning = "Whether jobs are tried beside others and elsewhere, and "
                    "what does not help is undone, whatever the policy."}),
    Key("throughputs", &SchedulingSpec::throughputs,
        {.values = "a path, relative to the cluster file",
         .otherwise = "none",
         .example = R"("throughputs.json")",
         .meaning = "Throughput file, for job types and pairs that job "
                    "files leave open."}),
};
constexpr auto kSchedulingRows = RowsOf(kSchedulingKeys);

constexpr FileKey kPriceRows[] = {
    {.name = "TYPE",
     .kind = KeyKind::kNumber,
     .range = kNotNegative,
     .otherwise = "0",
     .example = "v100 = 2.48",
     .meaning = "Price of one accelerator of that type for an hour.",
     .any_name = true},
};

constexpr std::tuple kEntityKeys = {
    Key("name", &TraceEntity::name,
        {.kind = KeyKind::kName,
         .required = true,
         .example = R"("vision")",
         .meaning = "Name that jobs give as `entity`."}),
    Key("weight", &TraceEntity::weight,
        {.range = kPositive,
         .default_value = "1",
         .example = "2",
         .meaning = "Its part of the cluster, relative to other "
                    "organisations."}),
    Key("policy", &TraceEntity::policy,
        {.kind = KeyKind::kName,
         .values = "`fairness`, `fifo` or a policy",
         .default_value = R"("fairness")",
         .example = R"("fifo")",
         .meaning = "How its part is divided among its jobs."}),
};
constexpr auto kEntityRows = RowsOf(kEntityKeys);

constexpr std::tuple kNotifyKeys = {
    Key("command", &NotifySpec::command,
        {.values = "a program's whole path and its arguments",
         .otherwise = "none",
         .example = R"(["/usr/local/bin/gavel-mail", "--from", "gavel"])",
         .meaning = "Program that is run for each notice, which it gets as a "
                    "line of JSON on its standard input; never a shell "
                    "line."},
        CheckNotifyCommand),
    Key("webhook", &NotifySpec::webhook,
        {.values = "an address with `http://` or `https://`",
         .otherwise = "none",
         .example = R"("https://hooks.example.com/gavel")",
         .meaning = "Address that gets each notice by POST, instead of "
                    "`command`; `curl` is used for it."},
        CheckWebhook),
    Key("events", &NotifySpec::events,
        {.values = "of `started`, `finished`, `failed`, `held`, `cancelled`, "
                   "`ended`, `at_risk` and `node_lost`, or `none` alone",
         .default_value = R"(["ended", "at_risk", "node_lost"])",
         .example = R"(["failed", "node_lost"])",
         .meaning = "What people are told of; `notify` of a job file counts "
                    "instead for its job."},
        CheckEvents),
};
constexpr auto kNotifyRows = RowsOf(kNotifyKeys);

constexpr std::tuple kServerKeys = {
    Key("name", &ServerSpec::name,
        {.kind = KeyKind::kName,
         .required = true,
         .example = R"("node-1")",
         .meaning = "Name of the server, unique in the file."}),
    Key("accelerator", &ServerSpec::accelerators,
        {.kind = KeyKind::kTables,
         .required = true,
         .example = R"([{ type = "v100" }])",
         .meaning = "Its accelerators, at most 256."}),
    Key("rack", &ServerSpec::rack,
        {.kind = KeyKind::kName,
         .otherwise = "none",
         .example = R"("rack-1")",
         .meaning = "The rack that it is in: a gang that fits on no server "
                    "goes to servers of one rack."}),
    Key("host_memory_bytes", &ServerSpec::host_memory_bytes,
        {.kind = KeyKind::kSize,
         .otherwise = "no limit",
         .example = R"("64GiB")",
         .meaning = "Host memory that parked jobs may take."}),
    Key("visibility", &ServerSpec::leased_visibility,
        {.kind = KeyKind::kChoice,
         .choices = kVisibilities,
         .remedy = kVisibilityRemedy,
         .default_value = R"("all")",
         .example = R"("leased")",
         .meaning = "`leased`: a process sees the accelerator of its lease "
                    "and no other, and restarts to get another one."}),
    Key("keep_environment", &ServerSpec::keep_environment,
        {.otherwise = "none",
         .example = R"(["LD_LIBRARY_PATH", "NCCL_*"])",
         .meaning = "Variables of the agent that workers keep; `*` at the "
                    "end: all that begin so."},
        CheckKept),
};
constexpr auto kServerRows = RowsOf(kServerKeys);

constexpr std::tuple kAcceleratorKeys = {
    Key("type", &AcceleratorInfo::type,
        {.kind = KeyKind::kName,
         .required = true,
         .example = R"("v100")",
         .meaning = "Accelerator type: an open name, as throughputs and "
                    "prices have it."}),
    Key("count", &AcceleratorEntry::count,
        {.range = {.min = 1, .max = kAcceleratorsPerServerMax},
         .default_value = "1",
         .example = "2",
         .meaning = "That many equal CPU slots. GPUs are written one by "
                    "one."}),
    Key("threads", &AcceleratorInfo::threads,
        {.range = {.min = 1, .max = 1024},
         .otherwise = "1 on a CPU slot; on a GPU its share of the server's "
                      "cores",
         .example = "4",
         .meaning = "Threads of a worker (`OMP_NUM_THREADS`)."}),
    Key("device", &AcceleratorInfo::device,
        {.values = "`cpu`, `cuda:N`, `xpu:N` or `hpu:N`",
         .default_value = R"("cpu")",
         .example = R"("cuda:0")",
         .meaning = "What the accelerator is."},
        CheckDevice),
    Key("uuid", &AcceleratorInfo::uuid,
        {.values = "`GPU-...` or `MIG-...`, or its beginning",
         .otherwise = "that of `device`",
         .example = R"("MIG-8a1b2c3d-0f1e")",
         .meaning = "The GPU, or part of one by MIG, instead of `device`."},
        CheckUuid),
    Key("slow_down_factor", &AcceleratorInfo::slow_down_factor,
        {.range = {.min = 1, .max = 1000},
         .default_value = "1",
         .example = "2.0",
         .meaning = "Makes each step that much slower. For demonstrations "
                    "only."}),
    Key("memory_bytes", &AcceleratorInfo::memory_bytes,
        {.kind = KeyKind::kSize,
         .otherwise = "what NVML tells",
         .example = R"("141GiB")",
         .meaning = "Memory of the accelerator, within which paused jobs "
                    "may stay on it."}),
    Key("context_bytes", &AcceleratorInfo::context_bytes,
        {.kind = KeyKind::kSize,
         .otherwise = "what NVML tells, else 512MiB",
         .example = R"("500MiB")",
         .meaning = "Part of `memory_bytes` that each CUDA process takes "
                    "anyway; needs `memory_bytes`."}),
    Key("exclusive", &AcceleratorInfo::exclusive,
        {.otherwise = "what NVML tells",
         .example = "true",
         .meaning = "One process at a time may use it (exclusive-process "
                    "mode): paused jobs leave it by ending."}),
    Key("group", &AcceleratorInfo::group,
        {.kind = KeyKind::kName,
         .otherwise = "for GPUs, what NVML tells",
         .example = R"("nvlink-0")",
         .meaning = "Accelerators of one server with the same group are "
                    "joined (NVLink, a NUMA node); gangs go to one group "
                    "where they can."}),
};
constexpr auto kAcceleratorRows = RowsOf(kAcceleratorKeys);

constexpr FileTable kClusterTables[] = {
    {"", "The file consists of these tables, all optional:", kClusterRows},
    {"[scheduling]",
     "How the coordinator schedules. The options of `gavel "
     "coordinator` and `gavel local` win over it.",
     kSchedulingRows},
    {"[prices]", "Per accelerator and hour, in any currency.", kPriceRows},
    {"[[entity]]", "Once for each organisation.", kEntityRows},
    {"[notify]",
     "Notices for people, from `gavel coordinator` and `gavel local` "
     "(docs/notify.md).",
     kNotifyRows},
    {"[[server]]", "Once for each server.", kServerRows},
    {"[[server.accelerator]]",
     "Once for each GPU, or kind of CPU slot, of the "
     "server above it.",
     kAcceleratorRows},
};

}  // namespace

std::span<const FileTable> ClusterFileTables() { return kClusterTables; }

// ---- The parser ----

namespace {

void CheckMemory(TomlReader& reader, const AcceleratorInfo& info) {
  if (info.context_bytes == 0 || info.context_bytes < info.memory_bytes) return;
  reader.Fail("context_bytes",
              "context_bytes is part of memory_bytes; give memory_bytes, and "
              "less here");
}

void ReadScheduling(TomlReader reader, SchedulingSpec& spec) {
  ReadMembers(reader, kSchedulingKeys, spec);
  if (!reader.Has("lease_duration_s")) {
    spec.lease_duration_s =
        std::min(spec.lease_duration_s, spec.round_duration_s);
  }
  if (spec.lease_duration_s > spec.round_duration_s) {
    reader.Fail("lease_duration_s",
                StrCat("lease_duration_s ", spec.lease_duration_s,
                       " exceeds round_duration_s ", spec.round_duration_s,
                       "; lower it, or lengthen the round"));
  }
}

void CheckSlot(TomlReader& reader, const AcceleratorInfo& info) {
  if (info.uuid.empty() && info.device == "cpu") {
    if (!info.exclusive) return;
    return reader.Fail("exclusive",
                       "exclusive is for GPUs and the like, and this is a CPU "
                       "slot; leave it out, or give its device or uuid");
  }
  for (const char* key : {"count", "threads"}) {
    if (!reader.Has(key)) continue;
    reader.Fail(key, StrCat(key, " is for CPU slots; leave it out for \"",
                            info.uuid.empty() ? info.device : info.uuid,
                            "\" and write one entry per GPU"));
  }
}

AcceleratorEntry ReadAccelerator(TomlReader reader) {
  AcceleratorEntry entry;
  ReadMembers(reader, kAcceleratorKeys, entry);
  CheckMemory(reader, entry);
  CheckSlot(reader, entry);
  return entry;
}

// True when a GPU of that device is there already.
bool IsTaken(const ServerSpec& server, std::string_view device) {
  return device != "cpu" &&
         std::any_of(server.accelerators.begin(), server.accelerators.end(),
                     [device](const AcceleratorInfo& info) {
                       return info.device == device;
                     });
}

void Append(TomlReader reader, const AcceleratorEntry& entry,
            ServerSpec& server) {
  if (IsTaken(server, entry.device)) {
    reader.Fail("device",
                StrCat("server \"", server.name, "\" has \"", entry.device,
                       "\" twice; remove one of the entries"));
  }
  const size_t size = server.accelerators.size();
  if (size + static_cast<size_t>(entry.count) > kAcceleratorsPerServerMax) {
    return reader.Fail(
        "count",
        StrCat("server \"", server.name, "\" has more than ",
               kAcceleratorsPerServerMax, " accelerators; declare fewer"));
  }
  for (int i = 0; i < entry.count; ++i) {
    AcceleratorInfo& info = server.accelerators.emplace_back(entry);
    const size_t index = server.accelerators.size() - 1;
    if (info.uuid.empty()) {
      info.uuid = StrCat(server.name, "-", index);
    } else {
      info.device = StrCat("cuda:", index);  // until its agent knows
    }
  }
}

ServerSpec ReadServer(const toml::table& table, std::string_view source,
                      absl::Status& status) {
  const std::span<const FileTable> tables = ClusterFileTables();
  TomlReader reader(table, source, tables, "[[server]]", status);
  ServerSpec server;
  ReadMembers(reader, kServerKeys, server);
  for (const toml::table* accelerator : reader.Tables("accelerator")) {
    const TomlReader entry(*accelerator, source, tables,
                           "[[server.accelerator]]", status);
    Append(entry, ReadAccelerator(entry), server);
  }
  for (AcceleratorInfo& info : server.accelerators) {
    info.alone_visible = server.leased_visibility && info.device != "cpu";
  }
  return server;
}

// A group is inside one server. `owners`: the server of each group so far.
void CheckGroups(TomlReader reader, const ServerSpec& server,
                 std::map<std::string, std::string>& owners) {
  for (const AcceleratorInfo& info : server.accelerators) {
    if (info.group.empty()) continue;
    const auto [owner, added] = owners.try_emplace(info.group, server.name);
    if (owner->second == server.name) continue;
    return reader.Fail(
        "accelerator",
        StrCat("group \"", info.group, "\" is on servers \"", owner->second,
               "\" and \"", server.name,
               "\"; a group joins accelerators of one server, so give each "
               "server names of its own"));
  }
}

}  // namespace

absl::StatusOr<ClusterSpec> ParseClusterSpec(std::string_view toml,
                                             std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(toml, source, kClusterSpecBytesMax));
  absl::Status status;
  const std::span<const FileTable> tables = ClusterFileTables();
  TomlReader reader(root, source, tables, "", status);
  ClusterSpec spec;
  if (const toml::table* table = reader.Table("scheduling")) {
    ReadScheduling(TomlReader(*table, source, tables, "[scheduling]", status),
                   spec.scheduling);
  }
  if (const toml::table* table = reader.Table("prices")) {
    TomlReader prices(*table, source, tables, "[prices]", status);
    for (const std::string& type : prices.Keys()) {
      prices.Read(type, spec.scheduling.prices[type], kNotNegative);
    }
  }
  for (const toml::table* table : reader.Tables("entity")) {
    TomlReader entity(*table, source, tables, "[[entity]]", status);
    ReadMembers(entity, kEntityKeys, spec.scheduling.entities.emplace_back());
  }
  if (const toml::table* table = reader.Table("notify")) {
    TomlReader notify(*table, source, tables, "[notify]", status);
    ReadMembers(notify, kNotifyKeys, spec.notify);
    if (notify.Has("command") && notify.Has("webhook")) {
      notify.Fail("webhook",
                  "command and webhook both say how people are told; leave one "
                  "out, or have the command call curl");
    }
  }
  std::set<std::string> names;
  std::map<std::string, std::string> groups;
  for (const toml::table* table : reader.Tables("server")) {
    spec.servers.push_back(ReadServer(*table, source, status));
    CheckGroups(TomlReader(*table, source, status), spec.servers.back(),
                groups);
    const std::string& name = spec.servers.back().name;
    if (!names.insert(name).second) {
      TomlReader(*table, source, status)
          .Fail("name", StrCat("server \"", name,
                               "\" is named twice; give each its own name"));
    }
  }
  GAVEL_RETURN_IF_ERROR(status);
  return spec;
}

}  // namespace gavel
