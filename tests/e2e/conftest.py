"""One finished run that several tests of a file look at, and a folder to start others in."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import Workplace


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A run of 8 steps with validation, test and samples, which ended well."""
    place = Workplace(tmp_path_factory.mktemp("finished"))
    result = place.train("--train.steps=8", "--eval.every=4", "--sample.every=4")
    assert result.returncode == 0, result.stderr
    place.output = result.stdout
    return place
