#include "tests/policy/exact_solver.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "core/text.h"
#include "tests/server/temporary_folder.h"

namespace gavel::testing {
namespace {

// All digits of it: a double has finitely many.
std::string Exactly(double value) {
  char text[1200];
  std::snprintf(text, sizeof text, "%.1100g", value);
  return text;
}

std::string Term(double factor, int column) {
  return StrCat(factor < 0 ? " - " : " + ", Exactly(std::abs(factor)), " x",
                column, "\n");
}

std::string TextOf(const LinearProgram& program) {
  std::string text = "Maximize\n obj:";
  for (int j = 0; j < program.columns(); ++j) {
    const double cost = program.column_cost[static_cast<size_t>(j)];
    if (cost != 0) text += Term(cost, j);
  }
  text += "Subject To\n";
  for (size_t i = 0; i < program.row_lower.size(); ++i) {
    const auto first = static_cast<size_t>(program.row_start[i]);
    const size_t end = i + 1 < program.row_start.size()
                           ? static_cast<size_t>(program.row_start[i + 1])
                           : program.entry_column.size();
    StrAppend(&text, " r", i, ":");
    for (size_t e = first; e < end; ++e) {
      if (program.entry_value[e] == 0) continue;
      text += Term(program.entry_value[e], program.entry_column[e]);
    }
    const bool below = std::isfinite(program.row_upper[i]);
    StrAppend(&text, below ? " <= " : " >= ",
              Exactly(below ? program.row_upper[i] : program.row_lower[i]),
              "\n");
  }
  text += "Bounds\n";
  for (int j = 0; j < program.columns(); ++j) {
    const double lower = program.column_lower[static_cast<size_t>(j)];
    const double upper = program.column_upper[static_cast<size_t>(j)];
    if (lower != 0) StrAppend(&text, " ", Exactly(lower), " <= x", j, "\n");
    if (std::isfinite(upper)) {
      StrAppend(&text, " x", j, " <= ", Exactly(upper), "\n");
    }
  }
  return text + "End\n";
}

// Of digits, as many as there are, and their logarithm's whole part apart.
struct Digits {
  double leading = 0;  // in [0.1, 1), or 0
  int length = 0;
};

Digits DigitsOf(std::string_view digits) {
  Digits read;
  read.length = static_cast<int>(digits.size());
  read.leading =
      std::strtod(StrCat("0.", digits.substr(0, 20)).c_str(), nullptr);
  return read;
}

// "-12/345" or "7".
double Rational(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const size_t bar = text.find('/');
  const Digits above = DigitsOf(text.substr(0, bar));
  const Digits below =
      bar == text.npos ? DigitsOf("1") : DigitsOf(text.substr(bar + 1));
  const double value = above.leading / below.leading *
                       std::pow(10.0, above.length - below.length);
  return negative ? -value : value;
}

std::optional<ExactSolution> Read(const std::string& path, size_t rows) {
  std::ifstream file(path);
  ExactSolution solution;
  solution.row_duals.assign(rows, 0.0);
  bool of_rows = false;
  bool known = false;
  for (std::string line; std::getline(file, line);) {
    const size_t is = line.find(" = ");
    if (line == "status = OPTIMAL") {
      solution.feasible = known = true;
    } else if (line == "status = INFEASIBLE") {
      known = true;
    } else if (line.ends_with(':')) {
      of_rows = line == "PI:";
    } else if (line.find("Value = ") != line.npos) {
      solution.objective = Rational(std::string_view(line).substr(is + 3));
    } else if (of_rows && is != line.npos) {
      const size_t row = std::strtoul(line.c_str() + 1, nullptr, 10);
      if (row >= rows) return std::nullopt;
      solution.row_duals[row] = Rational(std::string_view(line).substr(is + 3));
    }
  }
  if (!known) return std::nullopt;
  return solution;
}

}  // namespace

std::optional<ExactSolution> SolveExactly(const LinearProgram& program) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  std::ofstream(path + "/program.lp") << TextOf(program);
  const std::string command =
      StrCat("cd '", path,
             "' && timeout 60 esolver -L -O answer.sol program.lp "
             ">output.txt 2>&1");
  if (std::system(command.c_str()) != 0) return std::nullopt;
  return Read(path + "/answer.sol", program.row_lower.size());
}

}  // namespace gavel::testing
