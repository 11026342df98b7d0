"""`python -m pyhudi.service`, with an archive grace and a heartbeat that a test can wait for."""

from __future__ import annotations

import sys
from functools import partial

from processes.workload import SETTINGS
from pyhudi import service
from pyhudi.plan.archiving import ArchivePolicy
from pyhudi.settings import WriteSettings
from pyhudi.simulate.replacement import replaced

#: Longer than a process of a busy machine takes from one request to the next.
GRACE_MS = 10_000


def main() -> int:
    short = partial(ArchivePolicy, grace_ms=GRACE_MS, aborted_grace_ms=GRACE_MS)
    beating = partial(WriteSettings, heartbeat_interval_ms=SETTINGS.heartbeat_interval_ms)
    with replaced(service, "ArchivePolicy", short), replaced(service, "WriteSettings", beating):
        return service.main()


if __name__ == "__main__":
    sys.exit(main())
