"""The first day on GPUs: tests, demo, doctor and benchmarks of a machine with at least one GPU.

  gpu.py --build DIR [--device cuda:0] [--table FILE.md] [--only STEP...] [--minutes N] [--simulated]
  gpu.py --build DIR --bundle FILE.tar.xz

`./gavel-dev gpu` builds what this runs. Prints rows as they come and each step as it ends, writes
DIR/bench/gpu.json, and with --table a page for docs/measurements. A step that begins after the last minute is
left out, and said so. Exit codes: 0 all goals are met, 1 not, 2 no GPU.
--simulated does what is possible on the simulated accelerator, to test this file; it writes no page.
--bundle packs the programs, Debian's libraries that they need, and this file, for a machine with a GPU, a
Python that has the same LibTorch, and nothing else: there, unpack it and start gavel-gpu/run.
"""

import argparse
import concurrent.futures
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = {
    "minimal": [],
    "train_image": ["--epochs", "100000"],
    "train_imagenet": ["--synthetic", "--epochs", "100000", "--batch-size", "4"],
    "train_cyclegan": ["--synthetic", "--epochs", "100000"],
    "train_language_model": ["--synthetic", "--epochs", "100000"],
    "train_translation": ["--synthetic", "--epochs", "100000"],
    "train_gpt": ["--synthetic", "--epochs", "100000"],
    "train_recommendation": ["--synthetic", "--epochs", "100000"],
    "train_a3c": ["--epochs", "100000"],
}
# What a bundle has, in bin; of a build folder's.
BUNDLED = ["gavel", *EXAMPLES, "*_gpu", "*gpu_worker", "tests/*_gpu_test", "tests/*_gpu"]
BUNDLE_BYTES_MAX = 40_000_000
# Of the machine that it runs on: LibTorch's and CUDA's, and what belongs to the system's loader.
NOT_BUNDLED = ("/torch/lib/", "/nvidia/", "/libc.so", "/libm.so", "/libdl.so", "/libpthread.so", "/librt.so", "/libresolv.so", "/libutil.so",
               "/libgcc_s.so", "/libstdc++.so", "/ld-linux", "/libgomp")  # fmt: skip
RUN = """#!/usr/bin/env bash
# Tests and benchmarks on this machine's GPU: ./run [ARGS of bench/gpu.py]. PYTHON: one that has LibTorch.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
exec "${PYTHON:-python3}" -u bench/gpu.py --build . "$@"
"""
MEMORY_MIB = 2048  # of a simulated device
# Kernels of cuDNN and atomics add up in another order each time.
TOLERANCE = "0.05"
DEMO_JOB = """name = "{name}"
command = ["{program}", "--epochs", "1000", "--steps", "{steps}", "--seed", "{seed}"]
"""
DEMO_CLUSTER = """[scheduling]
policy = "max_min_fairness"
round_duration_s = 4
lease_duration_s = 3

[[server]]
name = "here"

[[server.accelerator]]
type = "gpu"
device = "{device}"
memory_bytes = "{memory_mib}MiB"
"""


class Failure(Exception):
    """Why a step could not be measured."""


def row(case, value, unit="", peer="", peer_value=0, goal="", met=True):
    """As table.cc writes it."""
    return {"case": case, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value,
            "ratio": value / peer_value if peer_value else 0, "goal": goal, "met": met}  # fmt: skip


class Machine:
    def __init__(self, arguments):
        self.simulated = arguments.simulated
        self.device = "hpu:0" if arguments.simulated else arguments.device
        self.build = arguments.build.resolve()
        self.bin = self.build / "bin"
        self.end = time.monotonic() + 60 * arguments.minutes
        self.environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")
        self.environment["PATH"] = f"{self.bin}:{os.environ['PATH']}"
        if (self.build / "TORCH").exists():  # it is a bundle
            self.environment["LD_LIBRARY_PATH"] = ":".join([str(self.build / "lib"), *torch_folders(self.build)])
            self.environment["GAVEL_DIGITS_DIR"] = str(self.build / "digits")
        if self.simulated:
            self.folder = tempfile.TemporaryDirectory()  # of the memory that processes share
            self.settings = f"devices=2,memory_mib={MEMORY_MIB},context_mib=64,shared={self.folder.name}/memory"
            self.environment.update(GAVEL_TEST_DEVICE="hpu", GAVEL_SIMULATED_DEVICE=self.settings)

    def left_s(self):
        return self.end - time.monotonic()

    def run(self, command, timeout_s, stdout=subprocess.PIPE):
        """stdout and exit code; both streams in one on a failure's message."""
        timeout_s = max(1, min(timeout_s, self.left_s()))
        try:
            done = subprocess.run([str(word) for word in command], timeout=timeout_s, text=True,
                                  env=self.environment, stdout=stdout, stderr=subprocess.PIPE)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{command[0]} did not end within {timeout_s:.0f} s") from error
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}; build it first") from error
        return done

    def bench(self, name, *flags, timeout_s=300):
        program = self.bin / f"bench_{name}_gpu"
        if self.simulated:
            program = self.bin / "tests" / f"bench_{name}_simulated"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "rows.json"
            command = [program, "--device", self.device, "--out", out, *flags]
            done = self.run(command, timeout_s, stdout=None)  # its rows, as they come
            if done.returncode not in (0, 1) or not out.exists():
                last = done.stderr.strip().splitlines()[-1:]
                raise Failure(f"bench_{name}: {' '.join(last)}")
            return json.loads(out.read_text())["rows"]


def describe():
    """Device, memory (MiB) and driver of the first GPU; nothing where there is none."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total,driver_version",
             "--format=csv,noheader,nounits"], text=True, capture_output=True, check=True)  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return []
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line]


def tests(machine):
    """One program after the other: some look at the whole device. Without ctest, which not all machines have."""
    folder = machine.bin / "tests"
    programs = [folder / "device_simulated_test"]
    if not machine.simulated:
        programs = sorted([*folder.glob("*_gpu_test"), *folder.glob("*_test_gpu")])
        machine.environment["GAVEL_TEST_DEVICE"] = "cuda"
    if not programs:
        raise Failure(f"there is none in {folder}; build them first")
    machine.environment["GAVEL_NEEDS_DEVICE"] = "1"  # on a GPU that LibTorch does not see they fail
    rows, skipped = [], 0
    for program in programs:
        try:
            done = machine.run([program, "--gtest_brief=1"], 150)
        except Failure as failure:
            rows.append(row(f"tests: {failure}", 0, met=False))
            continue
        skipped += done.stdout.count("[  SKIPPED ]")
        failed = {line.split("]")[1].split("(")[0].strip() for line in done.stdout.splitlines() if "[  FAILED  ]" in line}
        if done.returncode != 0:
            why = "; ".join(sorted(failed)) or done.stderr.strip()[-200:] or f"code {done.returncode}"
            rows.append(row(f"tests: {program.name}: {why}", 0, met=False))
        print(f"  {program.name}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
    for name in ("GAVEL_NEEDS_DEVICE", "GAVEL_TEST_DEVICE"):
        if not machine.simulated:
            machine.environment.pop(name, None)
    return rows or [row(f"tests that need a GPU pass ({skipped} skipped)", 1)]


def demo(machine):
    """Three jobs take turns on the device."""
    program, steps, more = "train_image", 4000, ""
    memory_mib = int(describe()[0][1]) if not machine.simulated else MEMORY_MIB
    if machine.simulated:
        program, steps = machine.bin / "tests" / "train_image_simulated", 150
        more = f'[environment]\nGAVEL_SIMULATED_DEVICE = "{machine.settings}"\n'
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        cluster = folder / "cluster.toml"
        cluster.write_text(DEMO_CLUSTER.format(device=machine.device, memory_mib=memory_mib))
        jobs = []
        for seed in range(3):
            job = folder / f"job{seed}.toml"
            text = DEMO_JOB.format(program=program, name=f"digits-{seed}", steps=steps, seed=seed)
            job.write_text(text + more)
            jobs.append(job)
        summary = folder / "summary.json"
        done = machine.run(["gavel", "local", "--cluster", cluster, "--state", folder / "state",
                            "--summary", summary, *jobs], 180)  # fmt: skip
        if done.returncode != 0:
            raise Failure(f"gavel local: {done.stderr.strip()[-300:]}")
        ended = json.loads(summary.read_text())["jobs"]
        finished = sum(job["state"] == "finished" for job in ended)
        pauses = sum(job.get("pauses", 0) for job in ended)
        return [row("demo: jobs finished", finished, "of 3", goal="= 3", met=finished == 3),
                row("demo: pauses of the three", pauses, "", goal=">= 1", met=pauses >= 1)]  # fmt: skip


def doctor_one(machine, name):
    command = ["gavel", "doctor", "--json", "--device", machine.device, "--timeout", "150",
               "--tolerance", TOLERANCE, "--", name, *EXAMPLES[name]]  # fmt: skip
    try:
        done = machine.run(command, 400)
    except Failure as failure:
        return row(f"doctor: {name}: {failure}", 0, goal="PASS", met=False)
    try:
        found = json.loads(done.stdout)
        good = found["passed"] or found["unknown"]
        verdict = "PASS" if found["passed"] else found["problem"].splitlines()[0]
    except (ValueError, KeyError, IndexError):
        good, verdict = False, " ".join(done.stderr.strip().splitlines()[-1:]) or "no answer"
    return row(f"doctor: {name}: {verdict}", int(good), goal="PASS", met=good)


def doctor(machine):
    if machine.simulated:
        return []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda name: doctor_one(machine, name), EXAMPLES))


def pause(machine):
    # Restarts load CUDA, which takes seconds each.
    flags = ["--rounds", "3", "--restarts", "1", "--python", "0", "--pauses", "20"]
    return [] if machine.simulated else machine.bench("pause", *flags)


def checkpoint(machine):
    return [] if machine.simulated else machine.bench("checkpoint")


def workloads(machine):
    flags = ["--workload", "lstm", "--turns", "1"] if machine.simulated else ["--turns", "5"]
    rows = machine.bench("workloads", *flags)
    for one in rows if machine.simulated else []:
        one.update(goal="", met=True)
    return rows


def device(machine):
    return machine.bench("device", "--seconds", "0.3" if machine.simulated else "3")


STEPS = [tests, demo, pause, checkpoint, device, workloads, doctor]


def text_of(one):
    if not one["unit"] and not one["peer"]:
        return "yes" if one["value"] else "no"
    return f"{one['value']:.4g} {one['unit']}".strip()


def page(rows, machine_text):
    lines = ["# On a GPU", "", f"Measured by `./gavel-dev gpu` on {machine_text}.", "",
             "| case | value | against | its value | ratio | goal |",
             "|---|---:|---|---:|---:|---|"]  # fmt: skip
    for one in rows:
        peer = f"{one['peer_value']:.4g}" if one["peer"] else ""
        ratio = f"{one['ratio']:.3g}" if one["peer"] else ""
        goal = f"{one['goal']}{'' if one['met'] else ', missed'}" if one["goal"] else ""
        goal = goal or ("" if one["met"] else "missed")
        lines.append(
            f"| {one['case'].strip()} | {text_of(one)} | {one['peer']} | {peer} | {ratio} | {goal} |"
        )
    return "\n".join(lines) + "\n"


def torch_folders(build):
    """Where the Python that runs this has LibTorch and what that needs; without importing it, which takes seconds."""
    found = importlib.util.find_spec("torch")
    needed = (build / "TORCH").read_text().strip()
    version = importlib.metadata.version("torch").split("+")[0] if found else "none"
    if version != needed:
        sys.exit(f"gpu.py: these programs need LibTorch {needed}, and {sys.executable} has {version}; "
                 "start run with PYTHON=... of another")  # fmt: skip
    torch = Path(found.submodule_search_locations[0])
    return [str(torch / "lib"), *sorted(str(one) for one in torch.parent.glob("nvidia/*/lib"))]


def libraries_of(program):
    """Of these the machine may have none or others."""
    listed = subprocess.run(["ldd", program], text=True, capture_output=True, check=True).stdout
    paths = [line.split("=>")[1].split()[0] for line in listed.splitlines() if "=> /" in line]
    missing = [line.split()[0] for line in listed.splitlines() if "not found" in line]
    if missing:
        raise Failure(f"{program} needs {', '.join(missing)}, which is not on this machine; build it again")
    return {Path(path) for path in paths if not any(part in path for part in NOT_BUNDLED)}


def bundle(build, target):
    """Programs, libraries and data for a machine that has none of them."""
    programs = sorted({path for name in BUNDLED for path in (build / "bin").glob(name) if path.is_file()})
    if not any(path.name.endswith(("_gpu", "_gpu_test")) for path in programs):
        raise Failure(f"there is no program for a GPU in {build}/bin; build them first, by ./gavel-dev gpu --bundle")
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "gavel-gpu"
        libraries = set()
        for program in programs:
            copy = stage / program.relative_to(build)
            copy.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["strip", "-o", copy, program], check=True)
            libraries |= libraries_of(program)
        (stage / "lib").mkdir()
        for library in sorted(libraries):
            subprocess.run(["strip", "-o", stage / "lib" / library.name, library.resolve()], check=True)
        (stage / "bench").mkdir()
        shutil.copy(HERE / "gpu.py", stage / "bench")
        digits = os.environ.get("GAVEL_DIGITS_DIR")
        if digits:
            shutil.copytree(digits, stage / "digits")
        (stage / "TORCH").write_text(importlib.metadata.version("torch").split("+")[0] + "\n")
        (stage / "run").write_text(RUN)
        (stage / "run").chmod(0o755)
        subprocess.run(["tar", "-C", folder, "-cf", target, "-I", "xz -T0 -6", "gavel-gpu"], check=True)
    size = target.stat().st_size
    if size > BUNDLE_BYTES_MAX:
        raise Failure(f"{target} has {size} bytes, of at most {BUNDLE_BYTES_MAX}; leave programs out of BUNDLED in {HERE}/gpu.py")
    return f"{target}: {len(programs)} programs, {len(libraries)} libraries, {size / 1e6:.1f} MB"


def main():
    parser = argparse.ArgumentParser(prog="gavel-dev gpu", description="The first day on GPUs.")
    parser.add_argument("--build", type=Path, default=HERE.parent / "build", help="build folder")
    parser.add_argument("--device", default="cuda:0", help="cuda:N")
    parser.add_argument("--table", type=Path, help="writes the page of docs/measurements there")
    parser.add_argument("--minutes", type=float, default=10, help="in all (10)")
    parser.add_argument("--bundle", type=Path, help="packs for another machine, and runs nothing")
    parser.add_argument("--simulated", action="store_true", help="to test this, without a GPU")
    names = [step.__name__ for step in STEPS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these steps")
    arguments = parser.parse_args()
    if arguments.simulated and arguments.table:
        parser.error("--table is for figures of a GPU; the simulated accelerator has none")
    if arguments.bundle:
        try:
            print(bundle(arguments.build.resolve(), arguments.bundle))
        except (Failure, OSError, subprocess.CalledProcessError) as failure:
            print(f"gavel-dev gpu: no bundle: {failure}", file=sys.stderr)
            return 1
        return 0
    gpus = describe()
    if not gpus and not arguments.simulated:
        print("gavel-dev gpu: nvidia-smi shows no GPU; --simulated tests this without one", file=sys.stderr)
        return 2
    machine = Machine(arguments)
    text = "the simulated accelerator (not figures)"
    if not arguments.simulated:
        text = f"{len(gpus)} x {gpus[0][0]} of {gpus[0][1]} MiB, driver {gpus[0][2]}"
    print(f"On {text}", flush=True)
    rows = []
    for step in STEPS:
        if step.__name__ not in arguments.only:
            continue
        begin = time.monotonic()
        try:
            if machine.left_s() < 1:
                raise Failure(f"the {arguments.minutes:g} minutes are over; see --minutes and --only")
            found = step(machine)
        except (Failure, OSError, ValueError, KeyError, IndexError) as failure:
            found = [row(f"{step.__name__}: not measured: {failure}", 0, met=False)]
        print(f"{step.__name__}: {time.monotonic() - begin:.0f} s", flush=True)
        for one in found:
            against = f"  {one['ratio']:.3g} x {one['peer']}" if one["peer"] else ""
            missed = "" if one["met"] else "  MISSED"
            print(f"  {one['case']}: {text_of(one)}{against}{missed}", flush=True)
        rows += found
    (arguments.build / "bench").mkdir(exist_ok=True)
    (arguments.build / "bench" / "gpu.json").write_text(json.dumps({"machine": text, "rows": rows}))
    if arguments.table:
        arguments.table.write_text(page(rows, text))
    missed = sum(not one["met"] for one in rows)
    print(f"{missed} of {len(rows)} missed" if missed else f"all {len(rows)} met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
