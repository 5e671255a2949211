"""`python -m controlplane.embedded up|up-behind|behind [--checked]`: what `slipstream up`
becomes, apart from the command line's libraries, so that the supervisor stays small."""

import sys

from controlplane.embedded.commands import guarded
from controlplane.embedded.console import complain
from controlplane.errors import AppError
from controlplane.settings import load_settings

if __name__ == "__main__":
    try:
        known = load_settings()
    except AppError as error:
        complain(error)
        sys.exit(2)
    sys.exit(guarded(known, sys.argv[1], describe_machine="--checked" not in sys.argv[2:]))
