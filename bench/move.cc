// Measures a move between two servers that share no directory: the streams of
// two agents over loopback TCP, onto one disk, compared with a plain copy of
// the same bytes over TCP in the same run.
//
//   bench_move [--out FILE.json]
//
// The state is 1 GB in 16 shards. "pre-copied": the previous generation is
// there already, and some shards have changed since; only these cross after the
// pause.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/table.h"
#include "coordinator/agent_host/agent_checkpoints.h"
#include "core/text.h"
#include "tests/agent_host/generation_samples.h"

namespace {

using gavel::CheckpointSource;
using gavel::FetchState;
using gavel::Generation;
using gavel::GenerationStream;
using gavel::JobId;
using gavel::StrCat;
using gavel::bench::Clock;
using gavel::bench::Die;
using gavel::bench::Folder;
using gavel::bench::Median;
using gavel::bench::OutFile;
using gavel::bench::Report;
using gavel::bench::SecondsSince;

constexpr size_t kShards = 16;
constexpr size_t kShardBytes = 62'500'000;
constexpr int kRuns = 3;
constexpr JobId kJob(1);

void Check(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

// Writes a generation in which `changed` of the shards differ from step 0.
void Commit(const std::string& directory, uint64_t step, size_t changed) {
  std::vector<std::string> shards;
  for (size_t i = 0; i < kShards; ++i) {
    const auto seed =
        static_cast<uint32_t>(i < changed ? 1000 * (step + 1) + i : i);
    shards.push_back(
        gavel::testing::MakeShard(StrCat("layer", i), kShardBytes, seed));
  }
  Check(gavel::testing::WriteGeneration(gavel::FileSystem::Posix(), directory,
                                        Generation{1, step}, shards));
}

double Fetch(GenerationStream& source, GenerationStream& reader,
             const std::string& from, const std::string& to) {
  const auto start = Clock::now();
  source.Serve(kJob, reader.public_key(), from);
  reader.Fetch(
      kJob, to,
      CheckpointSource{"a", source.endpoint(), source.public_key(), {}});
  while (true) {
    for (const FetchState& state : reader.TakeStates()) {
      if (!state.over) continue;
      if (!state.error.empty()) Die(state.error);
      return SecondsSince(start);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Copies over one connection with 1 MiB reads and writes and an fdatasync at
// each file's end, as scp does, but without encryption and without any checks.
double PlainCopy(const std::string& from, const std::string& to) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) !=
          0) {
    Die("no socket");
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    files.push_back(entry.path().filename().string());
  }
  std::filesystem::create_directories(to);
  const auto start = Clock::now();
  std::thread sender([&] {
    const int line = accept(listener, nullptr, nullptr);
    std::string buffer(size_t{1} << 20, '\0');
    for (const std::string& name : files) {
      const int file = open(StrCat(from, "/", name).c_str(), O_RDONLY);
      ssize_t got;
      while ((got = read(file, buffer.data(), buffer.size())) > 0) {
        for (ssize_t sent = 0; sent < got;) {
          sent +=
              std::max<ssize_t>(0, send(line, buffer.data() + sent,
                                        static_cast<size_t>(got - sent), 0));
        }
      }
      close(file);
    }
    close(line);
  });
  const int line = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(line, reinterpret_cast<sockaddr*>(&address), sizeof address) !=
      0) {
    Die("no connection");
  }
  std::string buffer(size_t{1} << 20, '\0');
  for (const std::string& name : files) {
    uint64_t left = std::filesystem::file_size(StrCat(from, "/", name));
    const int file =
        open(StrCat(to, "/", name).c_str(), O_WRONLY | O_CREAT, 0644);
    while (left > 0) {
      const ssize_t got =
          recv(line, buffer.data(), std::min<uint64_t>(left, buffer.size()), 0);
      if (got <= 0 ||
          write(file, buffer.data(), static_cast<size_t>(got)) != got)
        Die("the copy failed");
      left -= static_cast<uint64_t>(got);
    }
    fdatasync(file);
    close(file);
  }
  sender.join();
  close(line);
  close(listener);
  return SecondsSince(start);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string out = OutFile(argc, argv);
  std::string root = (std::filesystem::temp_directory_path() /
                      StrCat("gavel-bench-move-", getpid()))
                         .string();
  std::vector<double> plain, whole, quarter, none;
  for (int run = 0; run < kRuns; ++run) {
    const std::string from = root + "/from";
    std::filesystem::create_directories(from);
    auto source = *GenerationStream::Start({"127.0.0.1", [] {}});
    auto reader = *GenerationStream::Start({"127.0.0.1", [] {}});
    Commit(from, 1, 0);
    plain.push_back(PlainCopy(StrCat(from, "/", gavel::GenerationName({1, 1})),
                              root + "/plain"));
    whole.push_back(Fetch(*source, *reader, from, root + "/to"));
    Commit(from, 2, kShards / 4);
    quarter.push_back(Fetch(*source, *reader, from, root + "/to"));
    Commit(from, 3, kShards);
    none.push_back(Fetch(*source, *reader, from, root + "/to"));
    source.reset();
    reader.reset();
    std::filesystem::remove_all(root);
  }
  const char* peer = "plain TCP copy, unencrypted, unchecked";
  const double plain_s = Median(plain);
  return Report({{"move without pre-copy", Median(whole), "s", peer, plain_s},
                 {"after the pause, pre-copied, a quarter changed",
                  Median(quarter), "s", peer, plain_s},
                 {"after the pause, pre-copied, all changed", Median(none), "s",
                  peer, plain_s}},
                out);
}
