"""What it costs to import pyhudi, and to use it for the first time: CPU seconds of a fresh
interpreter, the best of some turns, with compiled bytecode at hand as in an installed package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from measure import verdict

TURNS = 7
IMPORT_CPU_S_MAX = 0.4

PROGRAMS = {
    "nothing": "pass",
    "import pyarrow": "import pyarrow",
    "import pyhudi": "import pyhudi",
    "pyhudi.open_table": "import pyhudi; pyhudi.open_table",
}
REPORT = "; import time; print(time.process_time())"


def main() -> bool:
    print("imports: CPU seconds of a fresh interpreter")
    with tempfile.TemporaryDirectory(prefix="pyhudi-bytecode-") as bytecode:
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment = {**inherited, "PYTHONPYCACHEPREFIX": bytecode}
        for program in PROGRAMS.values():
            _cpu_s(program, environment)  # compiles
        best = dict.fromkeys(PROGRAMS, float("inf"))
        for _ in range(TURNS):
            for name, program in PROGRAMS.items():
                best[name] = min(best[name], _cpu_s(program, environment))
    for name, cpu_s in best.items():
        print(f"  {name:18} {cpu_s:.2f}")
    return verdict("import pyhudi, CPU s", best["import pyhudi"], IMPORT_CPU_S_MAX)


def _cpu_s(program: str, environment: dict[str, str]) -> float:
    command = [sys.executable, "-c", f"{program}{REPORT}"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
