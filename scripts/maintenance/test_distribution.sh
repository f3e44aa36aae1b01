#!/usr/bin/env bash
# Test what is in dist/: install it into an empty environment, and run the tests of the source
# distribution there. From a wheel, nothing of the package but the wheel is within reach.
#
#     python -m build && scripts/maintenance/test_distribution.sh python3.12 wheel tests/nn -x
#
# CONSTRAINTS names a file of other versions than those of constraints.txt; /dev/null: the newest.
set -euo pipefail

[[ $# -ge 2 && $2 =~ ^(wheel|sdist)$ ]] || { echo "usage: $0 PYTHON wheel|sdist [PYTEST ARGUMENT...]" >&2; exit 2; }
python=$1 kind=$2
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/env"
tar -xzf dist/molattn-*.tar.gz -C "$work"
package=$(echo "$work"/molattn-*)
arguments=(-n auto --dist loadfile)
if [[ $kind = wheel ]]; then
  rm -r "$package/molattn"
  arguments+=(--ignore tests/test_repository.py) # reads the sources
  package=$(realpath dist/molattn-*.whl)
fi
"$work/env/bin/python" -m pip install -qq --disable-pip-version-check -c "${CONSTRAINTS:-constraints.txt}" "${package}[dev]"
cd "$work"/molattn-*/
"$work/env/bin/python" -m pytest "${arguments[@]}" "$@"
