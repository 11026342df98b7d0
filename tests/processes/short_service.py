"""`python -m pyhudi.service`, with a heartbeat that a test can wait for."""

from __future__ import annotations

import sys
from functools import partial

from processes.workload import SETTINGS
from pyhudi import service
from pyhudi.settings import WriteSettings
from pyhudi.simulate.replacement import replaced


def main() -> int:
    beating = partial(WriteSettings, heartbeat_interval_ms=SETTINGS.heartbeat_interval_ms)
    with replaced(service, "WriteSettings", beating):
        return service.main()


if __name__ == "__main__":
    sys.exit(main())
