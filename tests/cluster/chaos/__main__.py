"""``python -m tests.cluster.chaos``: see :mod:`tests.cluster.chaos`."""

import sys
import time
from contextlib import ExitStack

from tests.storage.sql.postgres_server import PostgresServer

from .processes import Setting
from .run import run_chaos
from .settings import SETTINGS_OVER_POSTGRES, NodesOverNats


def main() -> None:
    """Run the faults, and print a summary."""
    begin_s = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - begin_s:.0f} s: {words}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        name, faults, *seed = sys.argv[1:]
        setting: Setting
        if name in SETTINGS_OVER_POSTGRES:
            server = PostgresServer()
            stack.callback(server.close)
            setting = SETTINGS_OVER_POSTGRES[name](server)
        else:
            setting = NodesOverNats()
        chaos = run_chaos(setting, int(faults), int(seed[0]) if seed else 0, say)
    for kind, count in chaos.counts.items():
        print(f"{kind}: {count} times")
    for kind, times_s in sorted(chaos.silent_s.items()):
        ordered = sorted(times_s)
        middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
        print(f"{kind}: silent for {middle:.2f} s (median of {len(ordered)}), {late:.2f} s (99th percentile)")
    records = chaos.records.values()
    print(
        f"{chaos.counts.total()} faults; {sum(record.acknowledged_count for record in records)} commits acknowledged, "
        f"none lost; {sum(record.refused_count for record in records)} refusals"
    )


if __name__ == "__main__":
    main()
