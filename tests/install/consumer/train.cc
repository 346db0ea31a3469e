// A small training program as a user writes it: fits a line, prints the loss
// and the number of steps done.
#include <torch/torch.h>

#include <cstdio>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"

struct Line {
  torch::data::Example<> get(size_t index) const {
    const auto x = torch::full({1}, static_cast<double>(index) / 32);
    return {x, 3 * x + 1};
  }
  size_t size() const { return 32; }
};

int main() {
  torch::manual_seed(0);
  torch::nn::Linear model(1, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  gavel::DataLoaderOptions loading;
  loading.batch_size = 8;
  gavel::DataLoader loader(Line{}, loading);

  auto session = gavel::Session::FromEnvironment();
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  double loss = 0;
  while (!session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      optimizer.zero_grad();
      auto error = torch::mse_loss(model(batch.data), batch.target);
      error.backward();
      optimizer.step();
      loss = error.item<double>();
      session->Report("loss", loss);
    }
  }
  const int code = session->Finish();
  std::printf("%lld steps, loss %.6f\n",
              static_cast<long long>(session->steps_done()), loss);
  return code;
}
