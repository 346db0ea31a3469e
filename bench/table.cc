#include "bench/table.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "gavel_paths.h"
#include "nlohmann/json.hpp"

namespace gavel::bench {

double Row::ratio() const { return peer_value > 0 ? value / peer_value : 0; }

bool Row::met() const {
  switch (goal.of) {
    case Goal::Of::kNothing:
      return true;
    case Goal::Of::kRatioAtMost:
      return value >= 0 && peer_value > 0 && ratio() <= goal.bound;
    case Goal::Of::kRatioAtLeast:
      return peer_value > 0 && ratio() >= goal.bound;
    case Goal::Of::kValueAtMost:
      return value >= 0 && value <= goal.bound;
  }
  return false;
}

namespace {

void PrintRow(const Row& row, int pad) {
  std::printf("%-*s %10.2f %-5s ", pad, row.name.c_str(), row.value,
              row.unit.c_str());
  if (row.peer.empty()) {
    std::printf("%10s %7s  ", "-", "-");
  } else {
    std::printf("%10.2f %7.3g  ", row.peer_value, row.ratio());
  }
  char goal[32] = "-";
  if (row.goal.of != Goal::Of::kNothing) {
    std::snprintf(goal, sizeof(goal), "%s%s %g %s",
                  row.goal.of == Goal::Of::kValueAtMost ? "value " : "",
                  row.goal.of == Goal::Of::kRatioAtLeast ? ">=" : "<=",
                  row.goal.bound, row.met() ? "met" : "MISSED");
  }
  std::printf("%-18s  %s\n", goal, row.peer.c_str());
}

}  // namespace

void Print(const std::vector<Row>& rows) {
  size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  const int pad = static_cast<int>(width);
  std::printf("%-*s %10s %-5s %10s %7s  %-18s  %s\n", pad, "case", "value", "",
              "peer's", "ratio", "goal", "peer");
  for (const Row& row : rows) PrintRow(row, pad);
  std::fflush(stdout);
}

void PrintNow(const Row& row) {
  PrintRow(row, 0);
  std::fflush(stdout);
}

void Add(std::vector<Row>* rows, Row row) {
  PrintNow(row);
  rows->push_back(std::move(row));
}

int Report(const std::vector<Row>& rows, const std::string& out) {
  Print(rows);
  if (!out.empty()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      nlohmann::ordered_json goal = nullptr;
      if (row.goal.of != Goal::Of::kNothing) goal = row.goal.bound;
      list.push_back({{"case", row.name},
                      {"value", row.value},
                      {"unit", row.unit},
                      {"peer", row.peer},
                      {"peer_value", row.peer_value},
                      {"ratio", row.ratio()},
                      {"goal", goal},
                      {"met", row.met()}});
    }
    std::ofstream file(out);
    file << nlohmann::ordered_json{{"rows", list}}.dump(2) << '\n';
    if (!file.flush()) {
      std::fprintf(stderr, "%s can't be written\n", out.c_str());
      return 2;
    }
  }
  return std::ranges::all_of(rows, &Row::met) ? 0 : 1;
}

std::string ReferenceFolder() {
#ifdef GAVEL_REFERENCE_DIR
  return GAVEL_REFERENCE_DIR;
#else
  return "";
#endif
}

std::string OutFile(int argc, char** argv) {
  std::string out;
  ReadFlags(argc, argv, {{"--out", &out}});
  return out;
}

}  // namespace gavel::bench
