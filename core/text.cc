#include "core/text.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace gavel {

size_t EditDistance(std::string_view a, std::string_view b) {
  // The distances of the first i, i - 1 and i - 2 letters of `a` from each
  // beginning of `b`.
  std::vector<size_t> row(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> before(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row.back();
}

}  // namespace gavel
