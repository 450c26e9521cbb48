"""All that the promises look at, derived once from the operations and events of one run or many."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis import units as u
from brokerdrill.analysis.spark import cut
from brokerdrill.analysis.tables import Tables


@dataclass(frozen=True)
class Frames:
    """DataFrames keyed by run_id; the functions of `units` say what each holds.

    `sends` are the send operations and `receives` the receives that are ok (none on a dead-letter address), each with
    who served it.

    Of a large ledger `messages` and `units` leave out the plain messages: each is one unit of class ok. `plain` has
    those (run_id, address, message_id, began, over, at: when it was delivered), and `disordered` the messages that the
    check of order has to look at (`large`). Else both are None.
    """

    ops: DataFrame
    tables: Tables
    messages: DataFrame
    units: DataFrame
    sends: DataFrame
    receives: DataFrame
    plain: DataFrame | None = None
    disordered: Callable[[Collection[str]], tuple[DataFrame | None, DataFrame]] | None = None
    # Of a small ledger one job answers many questions at once. Of a large one each is asked on its own: in one plan
    # Spark takes the frames that they share for different ones, and makes them again.
    large: bool = False

    shared: dict[str, DataFrame] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[Frames], DataFrame]) -> DataFrame:
        """Return what `make` makes of these frames, computed once however many ask for it by `name`."""
        if name not in self.shared:
            self.shared[name] = cut(make(self))
        return self.shared[name]

    def together(self, parts: Sequence[DataFrame]) -> list[DataFrame]:
        """Return `parts` as the frames to ask for: all in one (columns that a part lacks are null), or each by
        itself."""
        return list(parts) if self.large else [reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)]

    @property
    def acked(self) -> DataFrame:
        """The sends whose attempt was acknowledged."""
        return self.sends.where(F.col("attempt_state") == "ok")

    @property
    def calls(self) -> DataFrame:
        """The operations that need a broker and carry no message: connects, prepares and commits."""
        wanted = ["run_id", "client", "op_id", "op", "outcome", "start", "end", "key", "broker", "instance"]
        return self.once(
            "calls", lambda made: made.ops.where(F.col("op").isin("connect", "prepare", "commit")).select(*wanted)
        )

    @property
    def plain_counts(self) -> DataFrame | None:
        """How many plain messages each address has: run_id, address, n; None: `messages` has them all."""
        if self.plain is None:
            return None
        plain = self.plain
        return self.once("plain_counts", lambda _: plain.groupBy("run_id", "address").agg(F.count("*").alias("n")))

    @property
    def first_deliveries(self) -> DataFrame:
        """The first delivery of each message that may have been sent, in each subscription: run_id, began, at."""
        known = self.messages.where(F.col("began").isNotNull()).select(
            "run_id", "began", F.explode("delivered.first.at").alias("at")
        )
        return known if self.plain is None else known.unionByName(self.plain.select("run_id", "began", "at"))

    def spec(self, name: str) -> DataFrame:
        """Return the specs (run_id, spec, bound, scope, side, check_period, cache_timeout) of the promise `name`."""
        return F.broadcast(self.tables.specs.where(F.col("name") == name).drop("name"))


def frames(ops: DataFrame, tables: Tables) -> Frames:
    """Derive the `Frames` from merged good operations (`units.good_ops`); each is computed once."""
    sends = ops.where(F.col("op") == "send")
    found = cut(u.messages(sends, u.deliveries(ops, tables), u.evidence(ops, tables)))
    received = ops.where((F.col("op") == "receive") & (F.col("outcome") == "ok"))
    return Frames(
        ops=ops,
        tables=tables,
        messages=found,
        units=cut(u.units(found, u.topics(ops, tables), tables)),
        sends=cut(u.served(sends, tables)),
        receives=u.served(received.join(u.dead_letter_addresses(tables), ["run_id", "address"], "left_anti"), tables),
    )


def marks(
    rows: DataFrame,
    *,
    breaks: Column | None = None,
    excused: Column | None = None,
    evidence: Column | None = None,
    doubt: Column | None = None,
    measured: Column | None = None,
    weight: Column | None = None,
    witness: Column | None = None,
) -> DataFrame:
    """Return `rows` (with run_id and spec) as marks, the form in which every promise hands in what it found.

    A mark `breaks` its promise, or is a break that is `excused`; is `evidence` that there was something to check;
    casts `doubt`, so that the promise cannot pass; has `measured` (double, milliseconds); `weight` (double) ranks its
    `witness` (a struct) among the worst.
    """
    no = F.lit(False)
    chosen = {
        "breaks": no if breaks is None else F.coalesce(breaks, no),
        "excused": no if excused is None else F.coalesce(excused, no),
        "evidence": no if evidence is None else F.coalesce(evidence, no),
        "doubt": no if doubt is None else F.coalesce(doubt, no),
        "measured": F.lit(None).cast("double") if measured is None else measured.cast("double"),
        "weight": F.lit(0.0) if weight is None else weight.cast("double"),
        "witness": F.lit(None).cast("string") if witness is None else F.to_json(witness),
    }
    return rows.select("run_id", "spec", *(column.alias(name) for name, column in chosen.items()))


def milliseconds(nanoseconds: Column) -> Column:
    """Return a time of nanoseconds (long) in milliseconds (double)."""
    return nanoseconds.cast("double") / F.lit(1e6)
