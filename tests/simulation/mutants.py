#!/usr/bin/env python3
"""Breaks one safety rule at a time, and expects gavel-simulation-test to find a seed that fails, or a test to fail.

mutants.toml, or the table that --table names, lists the rules. Each mutant is an edited copy of one or a few source files, compiled with the commands of
the build folder and linked before its libraries. Needs a build of gavel-simulation-test that is up to date.

    tests/simulation/mutants.py --build build                  # all
    tests/simulation/mutants.py --build build grant-nonce ...  # some
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = "gavel-simulation-test"
SIMULATED_DEVICE = {"OMP_WAIT_POLICY": "PASSIVE", "TORCH_FR_BUFFER_SIZE": "0",
                    "GAVEL_TEST_DEVICE": "hpu",
                    "GAVEL_SIMULATED_DEVICE": "devices=4,memory_mib=256"}
SEEDS = 2000
SECONDS_MAX = 900  # of one command; a mutant that hangs is not caught
# A process that dies is no violation that the simulation has found.
CAUGHT = re.compile(r"^seed (\d+) (?:VIOLATION|NOT FINISHED) (?!the process )(.*)$", re.MULTILINE)


class Broken(Exception):
    """The mutant could not be tried, or was not caught."""


def edits_of(mutant):
    return [mutant, *mutant.get("also", [])]


def stale_edits(mutant):
    """A line for each text to find that is not in its file exactly once."""
    counts = [(edit, (ROOT / edit["file"]).read_text().count(edit["find"])) for edit in edits_of(mutant)]
    return [f"{mutant['name']}: {edit['file']} has {count} times, not once: {edit['find']}"
            for edit, count in counts if count != 1]


def edited(mutant):
    """The edited files by path."""
    texts = {edit["file"]: (ROOT / edit["file"]).read_text() for edit in edits_of(mutant)}
    for edit in edits_of(mutant):
        texts[edit["file"]] = texts[edit["file"]].replace(edit["find"], edit["put"])
    return texts


class Build:
    def __init__(self, folder, program):
        self.folder = folder.resolve()
        self.program = program
        listed = self.run(["ninja", "-t", "commands", program])
        self.commands = listed.stdout.splitlines()

    def run(self, command, environment=None):
        return subprocess.run(command, cwd=self.folder, shell=isinstance(command, str), text=True,
                              env={**os.environ, **(environment or {})},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS_MAX)

    def must_run(self, command):
        done = self.run(command)
        if done.returncode != 0:
            raise Broken(done.stdout)

    def command_for(self, source):
        """The command that compiles `source`, alone or together with others (unity build)."""
        for command in self.commands:
            unit = pathlib.Path(command.rpartition(" -c ")[2])
            if unit == ROOT / source:
                return command
            if unit.parent.name == "Unity" and f'"{ROOT / source}"' in unit.read_text():
                return command
        raise Broken(f"{self.program} is not built of {source}")

    def compile(self, command, overlay):
        """Runs `command` with the files in `overlay` in place of those of the tree."""
        def instead(path):
            edit = overlay / pathlib.Path(path).relative_to(ROOT)
            return str(edit if edit.exists() else path)

        words = shlex.split(command)
        words.insert(next(i for i, word in enumerate(words) if word.startswith("-I")), f"-I{overlay}")
        unit = pathlib.Path(words[-1])
        compiled = overlay / unit.relative_to(ROOT)
        compiled.parent.mkdir(parents=True, exist_ok=True)
        words[-1] = instead(unit)
        if unit.parent.name == "Unity":
            words[-1] = str(compiled)
            compiled.write_text(re.sub(r'"(/[^"]+)"', lambda found: f'"{instead(found[1])}"', unit.read_text()))
        words[words.index("-o") + 1] = f"{compiled}.o"
        words[words.index("-MF") + 1] = f"{compiled}.d"
        self.must_run([*words, "-g0", "-w"])  # what an edit leaves unused is no error
        return f"{compiled}.o"

    def link(self, objects, program):
        """An object that stands before the libraries replaces the member with the same symbols."""
        output = re.compile(rf"-o bin/(tests/)?{re.escape(self.program)} ")
        replacement = f"{shlex.join(objects)} -Wl,-S -o {shlex.quote(program)} "
        self.must_run(output.sub(lambda _: replacement, self.commands[-1]))


def run_simulation(build, mutant, program):
    seeds = mutant.get("seeds", SEEDS)
    ran = build.run([program, "--seeds", f"1:{seeds}", "--stop-at-failure"])
    found = CAUGHT.search(ran.stdout)
    if ran.returncode != 1 or found is None:
        raise Broken(f"no seed of {seeds} fails, although {mutant['allows']}\n{ran.stdout}")
    return f"seed {found[1]}: {found[2]}"


def run_test(build, mutant, program):
    ran = build.run([program, "--gtest_brief=1", f"--gtest_filter={mutant['filter']}"], SIMULATED_DEVICE)
    if ran.returncode != 1 or "[  FAILED  ]" not in ran.stdout:
        raise Broken(f"{mutant['filter']} passes, although {mutant['allows']}\n{ran.stdout}")
    return mutant["filter"]


def catch(build, mutant):
    """What fails. Raises Broken if nothing does."""
    overlay = build.folder / "mutants" / mutant["name"]
    try:
        texts = edited(mutant)
        for path, text in texts.items():
            (overlay / path).parent.mkdir(parents=True, exist_ok=True)
            (overlay / path).write_text(text)
        program = str(overlay / build.program)
        commands = {build.command_for(source) for source in mutant.get("compile", texts)}
        build.link([build.compile(command, overlay) for command in sorted(commands)], program)
        run = run_test if "filter" in mutant else run_simulation
        return run(build, mutant, program)
    except subprocess.TimeoutExpired as late:
        raise Broken(str(late)) from late
    finally:
        shutil.rmtree(overlay, ignore_errors=True)


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    flags.add_argument("--table", type=pathlib.Path, default=ROOT / "tests/simulation/mutants.toml")
    flags.add_argument("-j", type=int, default=2, help="mutants at a time")
    flags.add_argument("names", nargs="*", help="default: all")
    args = flags.parse_args()
    mutants = tomllib.loads(args.table.read_text())["mutant"]
    known = {mutant["name"]: mutant for mutant in mutants}
    if len(known) != len(mutants) or not known.keys() >= set(args.names):
        sys.exit(f"the names of mutants are not distinct, or there is none of {args.names}")
    stale = [line for mutant in mutants for line in stale_edits(mutant)]
    if stale:
        sys.exit("\n".join(stale))
    programs = {known[name].get("program", PROGRAM) for name in args.names or known}
    builds = {program: Build(args.build, program) for program in programs}

    def report(name):
        began = time.monotonic()
        try:
            verdict, what = "caught", catch(builds[known[name].get("program", PROGRAM)], known[name])
        except Broken as broken:
            verdict, what = "NOT CAUGHT", str(broken)
        print(f"{name:24} {verdict} in {time.monotonic() - began:.0f} s: {what}", flush=True)
        return verdict == "caught"

    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        caught = list(pool.map(report, args.names or known))
    print(f"{sum(caught)} of {len(caught)} mutants are caught")
    sys.exit(0 if all(caught) else 1)


if __name__ == "__main__":
    main()
