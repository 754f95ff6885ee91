"""The machine in general terms."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["machine"]

_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


def machine() -> dict[str, Any]:
    """System, architecture, cores and instruction sets."""
    information = Path("/proc/cpuinfo")
    words = set(information.read_text().split()) if information.exists() else set()
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "cpu_features": [feature for feature in _FEATURES if feature in words],
        "python": platform.python_version(),
    }
