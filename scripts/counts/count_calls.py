"""Count the functions of molattn that a SMILES of ``molattn predict`` passes.

Predicts a table of one SMILES and prints the functions on two call stacks: where the text is parsed
(the deepest one with the text as an argument), and where the network begins to compute: the road
from the command to the arithmetic. A function counts once, with those that are defined in it.

    python scripts/counts/count_calls.py [MODEL] [SMILES]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import molattn
from molattn.cli import main

PACKAGE = Path(molattn.__file__).parent


def stack(frame: FrameType | None) -> list[str]:
    """Return file and name of the functions of molattn on a stack, the outermost first."""
    names = []
    while frame is not None:
        path, code = Path(frame.f_code.co_filename), frame.f_code
        if PACKAGE in path.parents and not code.co_name.startswith("<"):
            name = code.co_qualname.partition(".<locals>")[0]
            names.append(f"{path.relative_to(PACKAGE).as_posix()}: {name}")
        frame = frame.f_back
    return names[::-1]


def road(model: str, smiles: str) -> list[str]:
    """Return the functions on the road of a SMILES, in the order in which they are entered."""
    parsed: list[str] = []
    computed: list[str] = []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if parsed and code.co_name == "encode" and code.co_filename.endswith("model/network.py"):
            computed.extend(stack(frame.f_back))
            sys.setprofile(None)
        elif any(isinstance(one, str) and one == smiles for one in frame.f_locals.values()):
            parsed[:] = max(parsed, stack(frame), key=len)

    with TemporaryDirectory() as folder:
        table = Path(folder, "in.csv")
        table.write_text(f"smiles\n{smiles}\n")
        sys.setprofile(profile)
        main(["predict", model, str(table), "--output", f"{folder}/out.csv"])
    return [*dict.fromkeys([*parsed, *computed])]


if __name__ == "__main__":
    functions = road(*[*sys.argv[1:], "admet", "CC(=O)Oc1ccccc1C(=O)O"][:2])
    print("\n".join([*functions, f"{len(functions)} functions"]))
