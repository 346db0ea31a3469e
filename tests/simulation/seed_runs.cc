#include "tests/simulation/seed_runs.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/text.h"

namespace gavel {
namespace {

// Each process writes these lines, whose fields are separated by tabs:
//   begin SEED | fail SEED s|l TEXT | end SEED      for each seed
//   count f|p|c NAME NUMBER                         for all its seeds
// s: safety, l: liveness; f: faults, p: pauses, c: checks. '\1' separates the
// lines of a TEXT.
constexpr char kLineBreak = '\1';

void WriteCounts(std::FILE* out, const char* of,
                 const std::map<std::string, uint64_t>& counts) {
  for (const auto& [name, number] : counts) {
    if (number == 0) continue;
    std::fprintf(out, "count\t%s\t%s\t%llu\n", of, name.c_str(),
                 static_cast<unsigned long long>(number));
  }
}

void Add(std::map<std::string, uint64_t>& sum,
         const std::map<std::string, uint64_t>& counts) {
  for (const auto& [name, number] : counts) sum[name] += number;
}

void RunPart(const SeedRange& seeds, uint64_t first, uint64_t stride,
             const ScenarioOptions& options, bool stop_at_failure,
             std::FILE* out) {
  SeedRuns runs;
  for (uint64_t seed = first; seed <= seeds.last; seed += stride) {
    std::fprintf(out, "begin\t%llu\n", static_cast<unsigned long long>(seed));
    std::fflush(out);
    const ScenarioResult result = RunScenario(seed, options);
    Add(runs.faults, result.faults);
    Add(runs.pauses, result.pauses);
    Add(runs.checks, result.checks);
    if (!result.passed()) {
      const bool safety = !result.violations.empty();
      std::string what = safety ? result.violations.front() : result.unfinished;
      std::replace(what.begin(), what.end(), '\n', kLineBreak);
      std::fprintf(out, "fail\t%llu\t%s\t%s\n",
                   static_cast<unsigned long long>(seed), safety ? "s" : "l",
                   what.c_str());
    }
    std::fprintf(out, "end\t%llu\n", static_cast<unsigned long long>(seed));
    if (!result.passed() && stop_at_failure) break;
  }
  WriteCounts(out, "f", runs.faults);
  WriteCounts(out, "p", runs.pauses);
  WriteCounts(out, "c", runs.checks);
  std::fflush(out);
}

struct Process {
  pid_t pid = -1;  // it could not be started
  std::FILE* out = nullptr;
};

Process Fork(const SeedRange& seeds, uint64_t first, uint64_t stride,
             const ScenarioOptions& options, bool stop_at_failure) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {};
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    RunPart(seeds, first, stride, options, stop_at_failure,
            fdopen(ends[1], "w"));
    _exit(0);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return {};
  }
  return {pid, fdopen(ends[0], "r")};
}

// Sets `begun` to the seed that has begun and not ended; 0 if there is none.
void Read(std::string_view line, SeedRuns& runs, uint64_t& begun) {
  const std::vector<std::string> words = absl::StrSplit(ToAbsl(line), '\t');
  uint64_t number = 0;
  if (words.size() < 2) return;
  if (words[0] == "count" && words.size() == 4) {
    if (!absl::SimpleAtoi(words[3], &number)) return;
    auto& counts = words[1] == "f"   ? runs.faults
                   : words[1] == "p" ? runs.pauses
                                     : runs.checks;
    counts[words[2]] += number;
    return;
  }
  if (!absl::SimpleAtoi(words[1], &number)) return;
  if (words[0] == "begin") begun = number;
  if (words[0] == "end") {
    ++runs.seeds;
    begun = 0;
  }
  if (words[0] == "fail" && words.size() == 4) {
    std::string what = words[3];
    std::replace(what.begin(), what.end(), kLineBreak, '\n');
    runs.failures.push_back({number, words[2] == "s", std::move(what)});
  }
}

void Collect(const Process& process, SeedRuns& runs) {
  if (process.pid < 0) return;
  uint64_t begun = 0;
  char* line = nullptr;
  size_t size = 0;
  for (ssize_t length = 0; (length = getline(&line, &size, process.out)) > 0;) {
    Read(std::string_view(line, static_cast<size_t>(length - 1)), runs, begun);
  }
  std::free(line);
  std::fclose(process.out);
  int status = 0;
  waitpid(process.pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  runs.failures.push_back(
      {begun, true,
       WIFSIGNALED(status)
           ? StrCat("the process died of signal ", WTERMSIG(status))
           : StrCat("the process ended with ", WEXITSTATUS(status))});
}

double CpuOfChildren() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

std::optional<SeedRange> ParseSeeds(std::string_view text) {
  const size_t colon = text.find(':');
  SeedRange range;
  if (colon == std::string_view::npos ||
      !absl::SimpleAtoi(ToAbsl(text.substr(0, colon)), &range.first) ||
      !absl::SimpleAtoi(ToAbsl(text.substr(colon + 1)), &range.last) ||
      range.first < 1 || range.last < range.first) {
    return std::nullopt;
  }
  return range;
}

SeedRuns RunSeeds(const SeedRange& seeds, const ScenarioOptions& options,
                  int processes, bool stop_at_failure) {
  SeedRuns runs;
  runs.processes = std::max(1, processes);
  const auto stride = static_cast<uint64_t>(runs.processes);
  const auto began = std::chrono::steady_clock::now();
  const double cpu_before = CpuOfChildren();
  std::vector<Process> all;
  for (uint64_t i = 0; i < stride; ++i) {
    all.push_back(
        Fork(seeds, seeds.first + i, stride, options, stop_at_failure));
  }
  for (const Process& process : all) Collect(process, runs);
  // A process that could not be started runs no seeds and reports nothing.
  const uint64_t asked = seeds.last - seeds.first + 1;
  if (runs.failures.empty() && runs.seeds != asked) {
    runs.failures.push_back(
        {0, true,
         StrCat(runs.seeds, " of ", asked,
                " seeds were run: no more processes were to be had")});
  }
  std::sort(runs.failures.begin(), runs.failures.end(),
            [](const SeedFailure& a, const SeedFailure& b) {
              return a.seed < b.seed;
            });
  runs.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
          .count();
  runs.cpu_seconds = CpuOfChildren() - cpu_before;
  return runs;
}

std::string Describe(const SeedRuns& runs) {
  std::string text;
  uint64_t violations = 0;
  for (const SeedFailure& failure : runs.failures) {
    violations += failure.safety ? 1 : 0;
    StrAppend(&text, "seed ", failure.seed,
              failure.safety ? " VIOLATION " : " NOT FINISHED ", failure.what,
              "\n");
  }
  uint64_t faults = 0;
  for (const auto& [name, number] : runs.faults) {
    faults += number;
    absl::StrAppendFormat(&text, "  %-32s %12d\n", name, number);
  }
  for (const auto& [name, number] : runs.pauses) {
    absl::StrAppendFormat(&text, "  %-32s %12d\n", "pause: " + name, number);
  }
  for (const auto& [name, number] : runs.checks) {
    absl::StrAppendFormat(&text, "  %-32s %12d\n", name, number);
  }
  absl::StrAppendFormat(
      &text,
      "%d seeds, %d faults, %d violations, %d not finished; %.1f s, %.0f "
      "seeds/s/core; commit %s\n",
      runs.seeds, faults, violations, runs.failures.size() - violations,
      runs.seconds, static_cast<double>(runs.seeds) / runs.cpu_seconds,
      CommitName());
  return text;
}

}  // namespace gavel
