// A training loop in a host program that uses libraries of its own in each
// step. Exits with 0 if all of them, and the runtime, worked.
#include <cstdio>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "host_libraries.h"

struct Numbers {
  int get(size_t index) const { return static_cast<int>(index); }
  size_t size() const { return 10; }
};

int main() {
  auto session = gavel::Session::FromEnvironment();
  int64_t sum = 0;
  session->Track("sum", sum);
  gavel::DataLoaderOptions loading;
  loading.batch_size = 5;
  gavel::DataLoader loader(Numbers{}, loading);
  for (auto& batch : gavel::Iterator(*session, loader)) {
    for (const int number : batch) {
      sum += number;
      const std::string expected = "protobuf " + std::to_string(number) +
                                   " abseil " + std::to_string(number) + "\n";
      if (UseLibraries(number) != expected) return 2;
    }
  }
  const int code = session->Finish();
  std::printf("sum %lld after %lld steps\n", static_cast<long long>(sum),
              static_cast<long long>(session->steps_done()));
  return sum == 45 && session->steps_done() == 2 ? code : 3;
}
