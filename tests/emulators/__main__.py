"""``python -m tests.emulators``: installs both emulators. It exits with 1 if one of them fails."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.emulators.installed import AZURITE, FAKE_GCS, Emulator, NotInstalled, installed


def main() -> int:
    """Install both emulators at the same time.

    npm mostly waits for the network, and go for the processor.
    """
    with ThreadPoolExecutor() as pool:
        return max(pool.map(_install, (AZURITE, FAKE_GCS)))


def _install(emulator: Emulator) -> int:
    try:
        print(f"{emulator.name} {emulator.version}: {installed(emulator)}")
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
