"""What every test may use. Imports nothing beyond the base install and pytest: it also runs where only those are."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bundles",
        metavar="FOLDER",
        help="what tests/device/make_bundles.py wrote, for environments that cannot export",
    )
