from __future__ import annotations

import sys
from pathlib import Path

# The benchmark is a script, not a package that is installed; its folder is its path.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
