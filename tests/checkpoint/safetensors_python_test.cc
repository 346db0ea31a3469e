// A checkpoint opened by the reference implementation, and one of its files by
// us.
#include <ATen/ops/arange.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "gavel_paths.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/shard_files.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

int RunPython(const std::string& script, const std::string& arguments) {
  CheckpointFolder folder;
  std::string path = folder.path() + "/script.py";
  WriteBytes(path, script);
  std::string command =
      std::string(GAVEL_VENV_PYTHON) + " " + path + " " + arguments;
  return std::system(command.c_str());
}

bool HasSafetensors() {
  return ::access(GAVEL_VENV_PYTHON, X_OK) == 0 &&
         RunPython("import safetensors.numpy", "2>/dev/null") == 0;
}

TEST(SafetensorsPython, ReadsOurGenerations) {
  if (!HasSafetensors()) {
    GTEST_SKIP() << "no Python with safetensors at " << GAVEL_VENV_PYTHON;
  }
  CheckpointFolder folder;
  ASSERT_OK_AND_ASSIGN(GenerationStore store,
                       GenerationStore::Open(folder.path()));
  ASSERT_OK(store.Commit({3, 6}, SnapshotOfStep(6)));
  int result = RunPython(R"(
import json, sys
import numpy as np
from safetensors import safe_open
folder = sys.argv[1]
manifest = json.load(open(folder + "/manifest.json"))["body"]
assert (manifest["epoch"], manifest["step"]) == (3, 6), manifest
assert len(manifest["shards"]) == 2
t = {}
for shard in manifest["shards"]:
    with safe_open(folder + "/" + shard["file"], "np") as f:
        assert f.metadata()["format"] == "pt"
        t.update({name: f.get_tensor(name) for name in f.keys()})
assert t["model/weight"].dtype == np.float32
assert (t["model/weight"] == np.arange(8) + 6).all()
assert t["model/steps"].shape == () and t["model/steps"] == 6
assert t["optimizer/exp_avg"].shape == (2, 3)
assert (t["optimizer/exp_avg"] == 2.0).all()
assert t["model/mask"].dtype == np.bool_ and t["model/mask"].all()
assert t["gavel.bytes/cursor"].tobytes() == b"position 6"
assert t["gavel.bytes/empty"].shape == (0,)
assert len(t) == 6
)",
                         folder.path() + "/" + GenerationName({3, 6}));
  EXPECT_EQ(result, 0);
}

// As a user does it, with the latest of several.
TEST(SafetensorsPython, TheDocumentedLinesLoadTheLatestGeneration) {
  if (!HasSafetensors()) {
    GTEST_SKIP() << "no Python with safetensors at " << GAVEL_VENV_PYTHON;
  }
  CheckpointFolder folder;
  ASSERT_OK_AND_ASSIGN(GenerationStore store,
                       GenerationStore::Open(folder.path() + "/checkpoints"));
  for (const uint64_t step : {9, 10}) {
    ASSERT_OK(store.Commit({3, step}, SnapshotOfStep(step)));
  }
  const std::string not_committed =
      folder.path() + "/checkpoints/" + GenerationName({3, 11});
  ASSERT_EQ(::mkdir(not_committed.c_str(), 0700), 0);
  const std::string document = ReadBytes(GAVEL_SOURCE_DIR "/docs/iterator.md");
  const std::string begin = "```python\n";
  const size_t from = document.find(begin);
  ASSERT_NE(from, std::string::npos);
  const size_t code = from + begin.size();
  const std::string lines =
      document.substr(code, document.find("```", code) - code);
  const int result = RunPython(
      "import os, sys\nos.chdir(sys.argv[1])\n" + lines +
          "assert latest.name.endswith('10'), latest\n"
          "assert sorted(model) == ['mask', 'steps', 'weight'], model\n"
          "assert model['steps'] == 10 and model['weight'][0] == 10\n"
          "assert 'gavel.bytes/cursor' in tensors\n",
      folder.path());
  EXPECT_EQ(result, 0);
}

TEST(SafetensorsPython, WritesWhatWeRead) {
  if (!HasSafetensors()) {
    GTEST_SKIP() << "no Python with safetensors at " << GAVEL_VENV_PYTHON;
  }
  CheckpointFolder folder;
  std::string path = folder.path() + "/x.safetensors";
  ASSERT_EQ(RunPython(R"(
import sys
import numpy as np
from safetensors.numpy import save_file
save_file({"a": np.arange(6, dtype=np.float64).reshape(2, 3),
           "b": np.arange(5, dtype=np.int16)}, sys.argv[1], {"who": "python"})
)",
                      path),
            0);
  ASSERT_OK_AND_ASSIGN(Shard shard, ReadShard(path));
  EXPECT_EQ(shard.metadata.at("who"), "python");
  Snapshot snapshot{shard.tensors, {}};
  EXPECT_TRUE(SameTensor(*FindTensor(snapshot, "a"),
                         at::arange(6, at::kDouble).view({2, 3})));
  EXPECT_TRUE(
      SameTensor(*FindTensor(snapshot, "b"), at::arange(5, at::kShort)));
}

}  // namespace
}  // namespace gavel::testing
