"""Count the functions of molattn that a SMILES of ``molattn predict`` passes.

Predicts a table of one SMILES and prints the functions on the call stack wherever a function gets
the text, and where the network begins to compute: the road from the command to the arithmetic,
without what the network does inside ``forward``. A function counts once.

    python scripts/count_calls.py [MODEL] [SMILES]
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import molattn
from molattn.cli import main

PACKAGE = Path(molattn.__file__).parent


def stack(frame: FrameType | None) -> Iterator[str]:
    """Yield file and name of the functions of molattn on a stack, the innermost first."""
    while frame is not None:
        path, code = Path(frame.f_code.co_filename), frame.f_code
        if PACKAGE in path.parents and not code.co_name.startswith("<"):
            yield f"{path.relative_to(PACKAGE)}: {code.co_qualname}"
        frame = frame.f_back


def road(model: str, smiles: str) -> list[str]:
    """Return the functions on the road of a SMILES, in the order in which they are entered."""
    found: dict[str, None] = {}
    is_read = False

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal is_read
        if event != "call":
            return
        if frame.f_code.co_name == "forward":  # the first is that of the network
            if is_read:
                found.update(dict.fromkeys([*stack(frame.f_back)][::-1]))
                sys.setprofile(None)
        elif any(one == smiles for one in frame.f_locals.values() if isinstance(one, str)):
            functions = [*stack(frame)][::-1]
            found.update(dict.fromkeys(functions))
            is_read = is_read or bool(functions)

    with TemporaryDirectory() as folder:
        table = Path(folder, "in.csv")
        table.write_text(f"smiles\n{smiles}\n")
        sys.setprofile(profile)
        main(["predict", model, str(table), "--output", f"{folder}/out.csv"])
    return [*found]


if __name__ == "__main__":
    functions = road(*[*sys.argv[1:], "admet", "CC(=O)Oc1ccccc1C(=O)O"][:2])
    print("\n".join([*functions, f"{len(functions)} functions"]))
