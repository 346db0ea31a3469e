// One rank of a gang, for gang_session_test.cc: trains a small model with
// DataParallel and a global batch, told where the others are by the
// environment, as torchrun does. Writes its weights to the file it is given, in
// hexadecimal, to the bit.
//   [STEP_MS=n] [SAMPLE_MS=n] [EPOCHS=n] [SAMPLES=n]
//   [BATCH_NORM=1] [OWN_BUFFERS=1]
//   [READ_FILE=path] [KILL_FILE=path] gang_worker WEIGHTS
//   [DISK_FAILS_UNTIL=n] [GANG_WAIT_S=n]
//   [OUT_OF_MEMORY_WITH_THREADS=n]
//   [EVALUATION_MS=n [EVALUATION_RANK=n] [EVALUATION_STEP=n]]
//   [EPOCH_EVALUATION_MS=n]
//   [BALLAST_MIB=n] [TURNS_FILE=path] [EACH_ALONE=1]
// READ_FILE gets a line for each sample that any rank read: the step that it is
// read for, the process, and the sample's index. When there is a KILL_FILE,
// rank 1 removes it and is killed as soon as its state is collected. Until it
// has done n steps, rank 1 can write no more than a page into a file.
// On a slot of so many threads each step runs out of memory.
// EVALUATION_RANK (0) is busy alone for EVALUATION_MS, at the end of that step,
// or of its loop. All ranks are for EPOCH_EVALUATION_MS at the end of the first
// epoch, with a boundary each 10 ms. So many MiB of state are tracked beside
// the model. Processes with one TURNS_FILE, which is created, sleep for STEP_MS
// in turn, and three times as long if they had to wait for their turn: as on an
// accelerator that two jobs should not share. With EACH_ALONE there is no
// DataParallel.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "gavel/data_loader.h"
#include "gavel/data_parallel.h"
#include "gavel/iterator.h"

namespace {

int Number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

void Sleep(int64_t ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

void LimitFiles(rlim_t size_bytes) {
  const rlimit limit{size_bytes, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &limit);
}

// Sleeps while it has the lock of the file, if there is one.
void SleepInTurn(int turns, int64_t ms) {
  const bool waits = turns >= 0 && flock(turns, LOCK_EX | LOCK_NB) != 0;
  if (waits) flock(turns, LOCK_EX);
  Sleep(waits ? 3 * ms : ms);
  if (turns >= 0) flock(turns, LOCK_UN);
}

struct Sample {
  at::Tensor data;
  at::Tensor target;
};

// Points and the side of a curve on which they lie. 100: the last step of an
// epoch has another size.
struct Points {
  Sample get(size_t index) const {
    if (reads != nullptr) {
      std::fprintf(reads, "%lld %d %zu\n",
                   static_cast<long long>(session->steps_done()) + 1,
                   static_cast<int>(getpid()), index);
      std::fflush(reads);
    }
    const double x = static_cast<double>(index % 10) / 5 - 1;
    const double y = static_cast<double>(index / 10) / 5 - 1;
    return {torch::tensor({x, y}, torch::kFloat),
            torch::tensor(x * x > y ? 1 : 0, torch::kLong)};
  }
  size_t size() const { return count; }
  size_t count = 100;
  const gavel::Session* session = nullptr;
  FILE* reads = nullptr;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool batch_norm)
      : first(register_module("first", torch::nn::Linear(2, 16))),
        second(register_module("second", torch::nn::Linear(16, 2))),
        unused(register_module("unused", torch::nn::Linear(3, 3))) {
    if (batch_norm) norm = register_module("norm", torch::nn::BatchNorm1d(16));
  }
  at::Tensor forward(at::Tensor x) {
    x = first(x);
    if (norm) x = norm(x);
    return second(torch::tanh(x));
  }

  torch::nn::Linear first, second, unused;
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

void Write(const char* path, const Net& model) {
  FILE* file = std::fopen(path, "w");
  if (file == nullptr) return;
  const auto write = [file](const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().to(at::kDouble).reshape(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      std::fprintf(file, "%a\n", flat[i].item<double>());
    }
  };
  for (const at::Tensor& tensor : model->parameters()) write(tensor);
  for (const at::Tensor& tensor : model->buffers()) write(tensor);
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int step_ms = Number("STEP_MS", 0);
  const char* turns_file = std::getenv("TURNS_FILE");
  const int turns = turns_file == nullptr
                        ? -1
                        : open(turns_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const int sample_ms = Number("SAMPLE_MS", 0);
  const int epochs = Number("EPOCHS", 4);
  at::set_num_threads(1);
  const int too_many_threads = Number("OUT_OF_MEMORY_WITH_THREADS", 0);
  const int evaluation_ms = Number("EVALUATION_MS", 0);
  const int evaluation_rank = Number("EVALUATION_RANK", 0);
  const int evaluation_step = Number("EVALUATION_STEP", 0);
  const int epoch_evaluation_ms = Number("EPOCH_EVALUATION_MS", 0);
  gavel::SessionOptions session_options;
  if (!gavel::ReadEnvironment(&session_options).ok()) return 2;
  session_options.gang_wait_s = Number("GANG_WAIT_S", 60);
  auto session = gavel::Session::Create(session_options);
  Points points;
  points.session = session.get();
  points.count = static_cast<size_t>(Number("SAMPLES", 100));
  if (const char* path = std::getenv("READ_FILE")) {
    points.reads = std::fopen(path, "ae");
  }
  // Every rank begins with weights of its own; rank 0's count.
  torch::manual_seed(7 + static_cast<uint64_t>(session->rank()));
  Net model(std::getenv("BATCH_NORM") != nullptr);
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  gavel::DataLoaderOptions options;
  options.batch_size = 5;
  options.seed = 3;
  options.global_batch_size = 24;
  gavel::DataLoader loader(points, options);
  int64_t epoch = 0;
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);
  at::Tensor ballast =
      torch::ones({int64_t{Number("BALLAST_MIB", 0)} << 20}, torch::kByte);
  if (ballast.numel() > 0) session->Track("ballast", ballast);
  if (const char* file = std::getenv("KILL_FILE")) {
    session->Track(
        "death",
        [file, rank = session->rank()] {
          if (rank == 1 && unlink(file) == 0) raise(SIGKILL);
          return std::string("none");
        },
        [](const std::string&) {});
  }
  const int disk_fails_until = Number("DISK_FAILS_UNTIL", 0);
  if (disk_fails_until > 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    session->Track(
        "disk",
        [session = session.get(), disk_fails_until] {
          const bool fails =
              session->rank() == 1 && session->steps_done() < disk_fails_until;
          LimitFiles(fails ? 4096 : RLIM_INFINITY);
          return std::string("none");
        },
        [](const std::string&) {});
  }
  gavel::DataParallelOptions parallel_options;
  parallel_options.broadcast_buffers = Number("OWN_BUFFERS", 0) == 0;
  std::optional<gavel::DataParallel> parallel;
  if (std::getenv("EACH_ALONE") == nullptr) {
    parallel.emplace(*session, model, parallel_options);
  }

  while (epoch < epochs && !session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      const at::Tensor loss = torch::nn::functional::cross_entropy(
          model->forward(batch.data), batch.target);
      (loss * session->loss_scale()).backward();
      TORCH_CHECK_WITH(OutOfMemoryError,
                       at::get_num_threads() != too_many_threads,
                       "CUDA out of memory. Tried to allocate 2 GiB");
      Sleep(sample_ms * batch.data.size(0));
      if (!session->last_micro_batch()) continue;
      optimizer.step();
      optimizer.zero_grad();
      SleepInTurn(turns, step_ms);
      if (session->rank() == evaluation_rank &&
          session->steps_done() + 1 == evaluation_step) {
        Sleep(evaluation_ms);
      }
    }
    for (int left = epoch == 0 ? epoch_evaluation_ms : 0;
         left > 0 && session->Boundary(); left -= 10) {
      Sleep(10);
    }
    if (!session->stopped()) ++epoch;
  }
  if (session->rank() == evaluation_rank && evaluation_step == 0) {
    Sleep(evaluation_ms);
  }
  Write(argv[1], model);
  std::printf("steps %lld finished %d status %d %s\n",
              static_cast<long long>(session->steps_done()),
              session->finished() ? 1 : 0,
              static_cast<int>(session->status().code()),
              session->status().message().c_str());
  return session->Finish();
}
