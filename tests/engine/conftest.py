"""Storage for tests that make their own table."""

from __future__ import annotations

from itertools import count

import pytest

from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage

_numbers = count()


@pytest.fixture
def memory() -> Storage:
    """A storage in memory that no other test has."""
    return open_storage(f"memory://test-{next(_numbers)}")
