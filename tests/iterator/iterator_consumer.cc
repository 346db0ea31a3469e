// A host program that links libgavel_runtime.so and includes the public headers
// only, as C++17. Exits with what Finish() returns.
#include <cstdio>
#include <vector>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "gavel/status.h"

struct Numbers {
  double get(size_t index) const { return static_cast<double>(index); }
  size_t size() const { return 10; }
};

int main() {
  gavel::SessionOptions options;
  options.device = "cpu";
  auto session = gavel::Session::Create(options);
  double sum = 0;
  session->Track("sum", sum);
  gavel::DataLoaderOptions loading;
  loading.batch_size = 4;
  gavel::DataLoader loader(Numbers(), loading);
  for (auto& batch : gavel::Iterator(*session, loader)) {
    for (const double number : batch) sum += number;
  }
  const int code = session->Finish();
  std::printf("%g after %lld steps\n", sum,
              static_cast<long long>(session->steps_done()));
  return sum == 45 && session->steps_done() == 3 ? code : 1;
}
