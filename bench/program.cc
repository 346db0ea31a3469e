#include "bench/program.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <type_traits>

namespace gavel::bench {
namespace {

namespace fs = std::filesystem;

template <class T>
bool TakesValue(T*) {
  return !std::is_same_v<T, bool>;
}

void Take(bool* flag, const char*) { *flag = !*flag; }
void Take(std::string* text, const char* value) { *text = value; }
template <class Number>
void Take(Number* number, const char* value) {
  *number = static_cast<Number>(std::atof(value));
}

[[noreturn]] void TellUsage(const char* program,
                            const std::map<std::string, Flag>& flags) {
  std::fprintf(stderr, "usage: %s", program);
  for (const auto& [name, flag] : flags) {
    const bool text = std::holds_alternative<std::string*>(flag);
    const bool alone = std::holds_alternative<bool*>(flag);
    std::fprintf(stderr, " [%s%s]", name.c_str(),
                 alone  ? ""
                 : text ? " TEXT"
                        : " N");
  }
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" void EndAtLimit(int) {
  constexpr std::string_view kText =
      "not done within its LIMIT of bench/CMakeLists.txt: slower, or hanging\n";
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, kText.data(), kText.size());
  _exit(4);
}

// A benchmark that does not end must fail where nobody watches it.
[[maybe_unused]] const bool limited = [] {
  std::signal(SIGALRM, EndAtLimit);
  alarm(GAVEL_BENCH_LIMIT_S);
  return true;
}();

}  // namespace

void ReadFlags(int argc, char** argv,
               const std::map<std::string, Flag>& flags) {
  for (int i = 1; i < argc; ++i) {
    const auto found = flags.find(argv[i]);
    if (found == flags.end()) TellUsage(argv[0], flags);
    std::visit(
        [&](auto* place) {
          if (TakesValue(place) && ++i == argc) TellUsage(argv[0], flags);
          Take(place, argv[i]);
        },
        found->second);
  }
}

void Die(const std::string& why) {
  std::fprintf(stderr, "not measured: %s\n", why.c_str());
  std::exit(2);
}

void Demand(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::exit(3);
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) / 1e9;
}

double ProcessorSeconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string word;
  double ticks = 0;
  // utime and stime are the 14th and 15th; the name has no spaces here.
  for (int i = 1; i <= 15 && file >> word; ++i) {
    if (i >= 14) ticks += std::atof(word.c_str());
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double ResidentKb(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  double kilobytes = 0;
  while (status >> word) {
    if (word == "VmRSS:") status >> kilobytes;
  }
  return kilobytes;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + static_cast<long>(percent / 100 * last);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Folder::Folder(const std::string& parent)
    : path_((parent.empty() ? fs::temp_directory_path() : fs::path(parent)) /
            "gavel-bench-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) Die(path_ + " can't be made");
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace gavel::bench
