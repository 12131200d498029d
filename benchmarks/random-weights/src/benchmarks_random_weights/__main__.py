"""`python -m benchmarks_random_weights NAME FOLDER`: write the small files of a family."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks_random_weights.files import LAYOUTS, write_files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=LAYOUTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a few small layers, for a CPU")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    write_files(options.name, options.folder, tiny=options.tiny, seed=options.seed)


if __name__ == "__main__":
    main()
