"""What is built and what is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import edgeopt
import edgeopt_exporters
import edgeopt_runtime

ROOT = Path(__file__).parents[2]
PACKAGES = ("edgeopt", "edgeopt_exporters", "edgeopt_runtime")


@pytest.fixture(scope="module")
def installed() -> Distribution:
    return distribution("edgeopt")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("--sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build one archive of a source tree or sdist with uv, which `make` puts beside the interpreter."""
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--python", sys.executable]
    subprocess.run([*command, kind, "--out-dir", str(folder), str(source)], check=True)
    return next(path for path in folder.iterdir() if path.name.startswith("edgeopt"))


def test_tests_run_against_what_is_installed(installed: Distribution) -> None:
    for package in (edgeopt, edgeopt_exporters, edgeopt_runtime):
        assert package.__file__ is not None
        file = Path(package.__file__)
        assert file == Path(str(installed.locate_file(f"{package.__name__}/__init__.py")))
        assert ROOT / package.__name__ not in file.parents


def test_the_wheel_holds_three_typed_packages_and_nothing_else(sdist: Path, tmp_path: Path) -> None:
    # From the sdist, as whoever packages it again would.
    with zipfile.ZipFile(build("--wheel", sdist, tmp_path)) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    modules = {
        f"{package}/{file.relative_to(folder / package).as_posix()}"
        for package, folder in zip(PACKAGES, (ROOT, ROOT / "exporters", ROOT / "runtime/python"), strict=True)
        for file in (folder / package).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == modules


def test_the_sdist_holds_no_tests_and_no_build_products(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert tops == {
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "edgeopt",
        "exporters",
        "pyproject.toml",
        "runtime",
    }


def test_the_version_is_the_same_everywhere(installed: Distribution) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest is not None
    assert newest[1] == installed.version == edgeopt_runtime.__version__


def test_the_extras_are_those_of_the_readme(installed: Distribution) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `edgeopt\[(\w+)\]`", readme, re.MULTILINE))
    assert named == {"export", "torch", "quickstart"}
    assert named <= set(installed.metadata.get_all("Provides-Extra") or [])
