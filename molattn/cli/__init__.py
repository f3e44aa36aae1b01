"""The commands, a file each.

Exit codes: 0 done, 2 the user's input is wrong, 130 interrupted, 143 terminated, 1 anything else;
whatever is not 0 comes with one line on stderr that begins with ``error:``. Heavy imports happen
inside the commands, so that ``--help`` answers at once.
"""

import sys

try:
    from molattn.cli.program import main as main
    from molattn.cli.program import run as run
except KeyboardInterrupt:  # before the program has its handlers
    print("error: interrupted", file=sys.stderr)
    raise SystemExit(130) from None
