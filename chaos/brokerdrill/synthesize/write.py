"""Write a synthesized run directory: operations by Spark, the rest by hand, and the truth beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brokerdrill.analysis.spark import using
from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import (
    EVENT_COLUMNS,
    EVENTS_DIR,
    OPS_DIR,
    ScenarioText,
    finished,
    json_line,
    new_run,
    write_run,
)
from brokerdrill.ledger.journal import Journal
from brokerdrill.synthesize.plan import (
    DEAD_LETTERS,
    STORES,
    SynthesisPlan,
    expectations,
    instance,
    plan,
    promises,
    truth,
)
from brokerdrill.synthesize.rows import ROWS_A_PARTITION, RUN_ID, operations

TRUTH = "synthesized.json"


def synthesize(
    run_dir: Path,
    count: int,
    anomalies: dict[str, int],
    *,
    seed: int = 0,
    clients: int | None = None,
    master: str | None = None,
) -> dict[str, Any]:
    """Write a run of about `count` operations with `anomalies` into `run_dir`, which must not exist or be empty; return
    its truth, which is also in RUN_DIR/synthesized.json. Raises UsageError (`plan`)."""
    made = plan(count, anomalies, seed, clients)
    if run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
        raise UsageError(f"{run_dir} exists already: a run is synthesized into a new directory")
    (run_dir / EVENTS_DIR).mkdir(parents=True)
    addresses = [made.address(number) for number in range(made.addresses)]
    run = new_run(
        RUN_ID,
        scenario=ScenarioText("synthesized"),
        topology="none",
        seed=seed,
        started_at="2026-01-01T00:00:00Z",
        expect=expectations(made),
        promises=promises(),
        stores={f"store{store}": (instance(store, 0), instance(store, 1)) for store in range(STORES)},
        dead_letters=dict.fromkeys(addresses, DEAD_LETTERS),
        clocks=made.clocks,
    )
    write_run(run_dir, run)
    _write_events(run_dir, made)
    # All rows of a client are in one file, as `compact` leaves them.
    files = -(-count // ROWS_A_PARTITION)
    with using(master) as spark:
        by_client = operations(spark, made).repartitionByRange(files, "client").sortWithinPartitions("client", "op_id")
        by_client.write.parquet((run_dir / OPS_DIR).resolve().as_uri())
    known = truth(made)
    write_json(run_dir / TRUTH, known, indent=1)
    drained = {address: not (made.anomalies.get("unseen") and address == addresses[-1]) for address in addresses}
    # Last, so that a run that broke off while it was made says so.
    write_run(run_dir, finished(run, "completed", drained=drained))
    return known


def _write_events(run_dir: Path, made: SynthesisPlan) -> None:
    whole = [{"run_id": RUN_ID, "clock": "controller", **event} for event in made.events]
    with (run_dir / EVENTS_DIR / "synthesized.jsonl").open("wb") as out:
        out.writelines(json_line(event, EVENT_COLUMNS) for event in whole)
    journal = Journal(run_dir)
    for number, event in enumerate(event for event in whole if event["kind"] in ("fault", "heal")):
        word = "injected" if event["kind"] == "fault" else "healed"
        journal.write(word, f"{event['instance']}-{number // 2}", at_ns=event["t_ns"], name=event["name"])
    journal.close()
