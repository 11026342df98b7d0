"""Check the model of the commit protocol: check_model.py [--all | NAME...]

Runs TLC on the configurations in docs/protocol/model and compares what it says with that folder's
expected.json. A run whose name begins with `weak_` or `witness_` must be violated, and by the
promise that the table names: a model that no longer catches a weak design proves nothing about
the sound one. Every other run must hold, with the number of distinct states that the table names:
a run that suddenly sees fewer states has lost a behaviour.

Without arguments the quick runs are made. TLC is a Java program. Its jar is one of the locked
jars, which `fetch_jars.py` fetches.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "docs/protocol/model"
TOOLS = ROOT / "build/model"  # ignored by git

TLC_JARS = "tlc"  # a set of requirements/jars.toml

MUST_FAIL = ("weak_", "witness_")
#: Of the configurations with the word in their names.
MODULES = ("prune", "schema", "resize", "migrate")
QUICK_SECONDS_MAX = 25
HANG_SECONDS = 4 * 3600


@dataclass(frozen=True, slots=True)
class Expected:
    """A row of the table: what a run must say, and about how long it takes."""

    name: str
    seconds: int
    states: int | None = None  # of a run that holds
    violated: str | None = None  # the promise that a weak design breaks

    @property
    def is_quick(self) -> bool:
        return self.seconds <= QUICK_SECONDS_MAX

    @property
    def module(self) -> str:
        return next((module for module in MODULES if module in self.name), "protocol")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What TLC said."""

    has_completed: bool
    violated: str | None
    states: int | None


def loaded_table(text: str, names: Sequence[str]) -> tuple[Expected, ...]:
    """The table's rows, one for each configuration of these names, each of the right kind."""
    rows = tuple(Expected(name, **row) for name, row in json.loads(text).items())
    if odd := {row.name for row in rows} ^ set(names):
        raise SystemExit(f"expected.json and the .cfg files differ in: {', '.join(sorted(odd))}")
    for row in rows:
        fails = row.name.startswith(MUST_FAIL)
        if fails != (row.violated is not None) or fails != (row.states is None):
            raise SystemExit(f"expected.json: {row.name} must {'fail' if fails else 'hold'}")
    return rows


def parsed_outcome(output: str) -> Outcome:
    violation = re.search(r"^Error: (?:Invariant|Action property) (\w+) is violated", output, re.M)
    violated = violation[1] if violation else None
    if re.search(r"^Error: Temporal properties were violated", output, re.M):
        violated = "temporal"
    states = re.findall(r"([\d,]+) distinct states found, [\d,]+ states left", output)
    return Outcome(
        has_completed="Model checking completed. No error has been found." in output,
        violated=violated,
        states=int(states[-1].replace(",", "")) if states else None,
    )


def complaint(expected: Expected, outcome: Outcome) -> str | None:
    """Why the run is not as expected; None if it is."""
    if expected.violated is not None:
        if outcome.violated == expected.violated:
            return None
        if outcome.has_completed:
            return f"{expected.violated} was not violated: the model is too weak to show it"
        return f"expected a violation of {expected.violated}, got {outcome.violated or 'an error'}"
    if not outcome.has_completed:
        return f"{outcome.violated or 'TLC'}: {'violated' if outcome.violated else 'error'}"
    if outcome.states != expected.states:
        return f"{outcome.states:,} distinct states, where the table says {expected.states:,}"
    return None


def java(*arguments: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    return [f"{home}/bin/java" if home else "java", *arguments]


def load_jar() -> Path:
    """TLC's jar, fetched if it is not there yet."""
    program = str(Path(__file__).parent / "fetch_jars.py")
    command = [sys.executable, program, "--into", str(TOOLS), TLC_JARS]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("The model checker could not be loaded")
    return Path(done.stdout.strip())


def run(expected: Expected, jar: Path) -> str:
    """What TLC prints for the configuration."""
    with tempfile.TemporaryDirectory(prefix="pyhudi-model-") as scratch:
        command = java("-XX:+UseParallelGC", "-Xmx4g", f"-Djava.io.tmpdir={scratch}")
        command += ["-cp", str(jar), "tlc2.TLC"]
        # One worker: the trace found is a shortest one. No deadlock check: a run may just end.
        command += ["-workers", "1", "-deadlock", "-metadir", f"{scratch}/states"]
        command += ["-config", f"{expected.name}.cfg", f"{expected.module}.tla"]
        done = subprocess.run(
            command, cwd=MODEL, capture_output=True, text=True, timeout=HANG_SECONDS
        )
    return done.stdout + done.stderr


def is_as_expected(expected: Expected, jar: Path) -> bool:
    """Run the configuration, and print a line; all that TLC said goes to a file."""
    begun = time.monotonic()
    output = run(expected, jar)
    (TOOLS / f"{expected.name}.txt").write_text(output)
    outcome = parsed_outcome(output)
    wrong = complaint(expected, outcome)
    said = f"violates {outcome.violated}" if outcome.violated else "holds"
    print(
        f"{expected.name:34} {said:26} {outcome.states or 0:>10,} states"
        f" {time.monotonic() - begun:6.0f} s  {f'WRONG: {wrong}' if wrong else 'as expected'}",
        flush=True,
    )
    return wrong is None


def chosen_rows(rows: Sequence[Expected], arguments: argparse.Namespace) -> Sequence[Expected]:
    if unknown := set(arguments.names) - {row.name for row in rows}:
        raise SystemExit(f"no such configuration: {', '.join(sorted(unknown))}")
    if arguments.names:
        return [row for row in rows if row.name in arguments.names]
    return rows if arguments.all else [row for row in rows if row.is_quick]


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the model of the commit protocol.")
    parser.add_argument("names", nargs="*", help="configurations; without any, the quick ones")
    parser.add_argument("--all", action="store_true", help="also those that take long")
    arguments = parser.parse_args()
    names = [path.stem for path in MODEL.glob("*.cfg")]
    rows = loaded_table((MODEL / "expected.json").read_text(), names)
    chosen = chosen_rows(rows, arguments)
    jar = load_jar()
    wrong = [row.name for row in chosen if not is_as_expected(row, jar)]
    left_out = f", {len(rows) - len(chosen)} left out" if len(chosen) < len(rows) else ""
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} runs as expected{left_out}")
    if wrong:
        sys.exit(f"not as expected: {', '.join(wrong)} (what TLC said is in {TOOLS})")


if __name__ == "__main__":
    main()
