"""Fine-tuning jobs as people bring them, on models and data that packages ship.

    make examples                           # all of them: some minutes on two cores
    make examples EXAMPLES=keyword QUICK=1  # one of them, in a hurry

Each prints its numbers before and after, and leaves a picture and its bundles in the folder.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from finetuning.results import Result  # the folder of this script is on the path only now

__all__ = ["EXAMPLES", "run"]

#: By name, in the order in which they run.
EXAMPLES = ("image_classifier", "keyword", "ocr", "text_encoder", "two_tower", "uncertainty", "distillation")


def run(name: str, folder: Path, *, quick: bool) -> Result:
    """Run one example; its files go into the folder."""
    result: Result = importlib.import_module(f"finetuning.{name}").run(folder, quick=quick)
    return result


def main() -> None:
    """Run what the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*EXAMPLES, []], help="which; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer examples and steps")
    parser.add_argument("--out", type=Path, default=Path("examples-out"), help="the folder to write to")
    arguments = parser.parse_args()
    for name in arguments.names or EXAMPLES:
        started = time.perf_counter()
        result = run(name, arguments.out, quick=arguments.quick)
        print(f"{result.table()}\n  {time.perf_counter() - started:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
