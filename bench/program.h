// Flags, clocks, memory, a folder, and the end where something is wrong, for
// the programs of this folder. A program that is not done after its LIMIT of
// CMakeLists.txt ends with 4.
#ifndef GAVEL_BENCH_PROGRAM_H_
#define GAVEL_BENCH_PROGRAM_H_

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace gavel::bench {

using Clock = std::chrono::steady_clock;

// Where the value of a flag goes; that of a bool becomes the other one, without
// a value.
using Flag = std::variant<bool*, int*, size_t*, double*, std::string*>;
// Ends the program with how it is used where it is given anything else.
void ReadFlags(int argc, char** argv, const std::map<std::string, Flag>& flags);

// Ends the program: 2, not measurable.
[[noreturn]] void Die(const std::string& why);
// Ends it with 3, a wrong answer, unless that holds.
void Demand(bool holds, const std::string& what);

double SecondsSince(Clock::time_point start);
// Processor time of this process so far, all of its threads: what else goes on
// on the machine is no part of it.
double CpuSeconds();
// Processor time that another process has taken, and its memory.
double ProcessorSeconds(pid_t pid);
double ResidentKb(pid_t pid);

// The middle of `values`, which must not be empty; of an even number of them
// the upper one.
double Median(std::vector<double> values);
// 0 where there are none.
double Percentile(std::vector<double> values, double percent);

// A new folder below `parent` that goes with its owner.
class Folder {
 public:
  explicit Folder(const std::string& parent = "");
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_PROGRAM_H_
