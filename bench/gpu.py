"""The first day on GPUs: tests, demo, doctor and benchmarks of a machine with at least one GPU.

  gpu.py --build DIR [--device cuda:0] [--table FILE.md] [--only STEP...] [--simulated]

`./gavel-dev gpu` builds what this runs. Prints each step as it ends, writes DIR/bench/gpu.json, and
with --table a page for docs/measurements. Exit codes: 0 all goals are met, 1 not, 2 no GPU.
--simulated does what is possible on the simulated accelerator, to test this file; it writes no page.
"""

import argparse
import concurrent.futures
import json
import os
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
        self.environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")
        self.environment["PATH"] = f"{self.bin}:{os.environ['PATH']}"
        if self.simulated:
            self.folder = tempfile.TemporaryDirectory()  # of the memory that processes share
            self.settings = f"devices=2,memory_mib={MEMORY_MIB},context_mib=64,shared={self.folder.name}/memory"
            self.environment.update(GAVEL_TEST_DEVICE="hpu", GAVEL_SIMULATED_DEVICE=self.settings)

    def run(self, command, timeout_s, **more):
        """stdout and exit code; both streams in one on a failure's message."""
        try:
            done = subprocess.run([str(word) for word in command], timeout=timeout_s, text=True,
                                  env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, **more)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{command[0]} did not end within {timeout_s} s") from error
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
            done = self.run(command, timeout_s)
            if done.returncode not in (0, 1) or not out.exists():
                last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
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
    label = "^simulated_device$" if machine.simulated else "^gpu$"
    command = ["ctest", "--test-dir", machine.build, "--no-tests=error", "-L", label]
    command += ["--timeout", "120"]
    if machine.simulated:
        command = [machine.bin / "tests" / "device_simulated_test", "--gtest_brief=1"]
    machine.environment["GAVEL_NEEDS_DEVICE"] = "1"  # on a GPU that LibTorch does not see they fail
    done = machine.run(command, 420)
    if done.returncode != 0:
        failed = [line.strip() for line in done.stdout.splitlines() if "Failed" in line or "FAILED" in line]
        return [row(f"tests: {'; '.join(failed) or done.stderr.strip()[-200:]}", 0, met=False)]
    skipped = done.stdout.count("***Skipped")
    return [row(f"tests that need a GPU pass ({skipped} skipped)", 1)]


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
    flags = ["--rounds", "1", "--pauses", "20"]
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


STEPS = [tests, demo, workloads, pause, checkpoint, device, doctor]


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


def main():
    parser = argparse.ArgumentParser(prog="gavel-dev gpu", description="The first day on GPUs.")
    parser.add_argument("--build", type=Path, default=HERE.parent / "build", help="build folder")
    parser.add_argument("--device", default="cuda:0", help="cuda:N")
    parser.add_argument("--table", type=Path, help="writes the page of docs/measurements there")
    parser.add_argument("--simulated", action="store_true", help="to test this, without a GPU")
    names = [step.__name__ for step in STEPS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these steps")
    arguments = parser.parse_args()
    if arguments.simulated and arguments.table:
        parser.error("--table is for figures of a GPU; the simulated accelerator has none")
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
