"""Mutants of the analysis' rules and of what writes its evidence, each in a fork of one process, many in little time.

    PYTHONPATH=chaos:. .venv/bin/python benchmarks/mutation/forked.py FILE [--mutants 300] [--seed 1] [--only PART ...]

One operator of Python or of SQL is changed (`replaced.py`). A mutant of the analysis has to tell otherwise of some of
the ledgers that `tests/analysis` judges (made by hand, generated, on coarse clocks, ended by other clients), else to
fail its unit tests; one of the runner's writers has to fail theirs. FILE has a line of JSON a mutant, and none is tried
twice for the same text of its module. Not tried are those in `equivalent.txt`, whose lines say why a mutant tells
nothing else. Exit status 1: one lives that nobody explains.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import pickle
import random
import re
import select
import signal
import sys
import tempfile
import time
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from replaced import REPLACED, SQL

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "chaos/brokerdrill"
# What decides, and what says how much was seen.
ANALYSIS = (
    *("clients", "completeness", "coverage", "endings", "expectation", "gaps", "judge", "meeting", "messages"),
    *("placing", "readiness", "seen", "sums", "timeline", "verdict", "watching"),
    *(f"checks/{path.stem}" for path in sorted((PACKAGE / "analysis/checks").glob("[a-z]*.py"))),
)
# The tests of `tests/analysis` that need no Spark.
_UNITS = (
    *("borders", "clients", "expectation", "moments", "moments_of_alerts", "moments_of_epochs", "moments_of_faults"),
    *("ordered", "placing", "rounds", "series", "shown", "side_by_side", "small_ledgers", "timeline"),
)
# What writes evidence, with its tests.
RUNNER: Mapping[str, Sequence[str]] = {
    "evidence/journal_coverage": ("evidence/test_journal_coverage", "evidence/test_logs"),
    "evidence/logs": ("evidence/test_logs",),
    "evidence/process_ends": ("evidence/test_process_ends",),
    "evidence/spools": ("evidence/test_spools",),
    "guards/undone_faults": ("guards/test_undone_faults",),
    "load/clocks": ("load/test_clocks", "test_drain"),
    "load/worker": ("load/test_exit_reason", "load/test_clocks"),
    "watching/alerts": ("watching/test_alerts",),
    "watching/polling": ("watching/test_roles",),
    "watching/pressure": ("watching/test_pressure",),
    "watching/roles": ("watching/test_roles",),
}
# Generated ledgers; those on coarse clocks and those that other clients end are so many of the same seeds.
LEDGERS = 300
LEDGERS_CHANGED = 100
# Of all ledgers each so manieth is judged first, then each so manieth, then all: most mutants are noticed at once.
SHARES = (50, 10, 1)
LIMIT_S = 600.0
_COMPARED: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_COMPUTED: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.FloorDiv: ("//", "*"),
    ast.Mult: ("*", "//"),
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


# The ledgers that are judged, and those of which what explains their verdicts is compared as well, by name.
Made = tuple[Mapping[str, Any], Mapping[str, Any]]


class Mutant(NamedTuple):
    """A module's text (below the package), of which from `begin` to `end` another stands."""

    module: str
    begin: int
    end: int
    other: str

    def text(self, source: str) -> str:
        return source[: self.begin] + self.other + source[self.end :]

    def line(self, source: str) -> str:
        """Return FILE: the lines that are other ones, as `equivalent.txt` has them."""
        begin = source.rfind("\n", 0, self.begin) + 1
        changed = self.text(source)
        end = changed.find("\n", self.begin + len(self.other))
        return f"{self.module}.py: {' '.join(changed[begin:end].split())}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Yield every change of one operator in what a module runs."""
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    # Columns of ast are of bytes: these sources' code is ASCII up to what is changed.
    place: Callable[[int, int], int] = lambda line, column: starts[line - 1] + column  # noqa: E731
    tree = ast.parse(source)
    noted = [
        note
        for node in ast.walk(tree)
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if note is not None
    ]
    annotated = {id(inner) for note in noted for inner in ast.walk(note)}

    def between(left: ast.expr, right: ast.expr, word: str, other: str) -> Iterator[Mutant]:
        begin = place(left.end_lineno or 0, left.end_col_offset or 0)
        end = place(right.lineno, right.col_offset)
        spelled = r"\s+".join(map(re.escape, word.split()))
        pattern = rf"(?<![\w<>=!/*]){spelled}(?![\w<>=/*])"
        if found := re.search(pattern, source[begin:end]):
            yield Mutant(module, begin + found.start(), begin + found.end(), other)

    for node in ast.walk(tree):
        if id(node) in annotated:
            continue
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, right, operator in zip(sides, sides[1:], node.ops, strict=False):
                if type(operator) in _COMPARED:
                    yield from between(left, right, *_COMPARED[type(operator)])
        elif isinstance(node, ast.BoolOp):
            words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(left, right, *words)
        elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
            yield from between(node.left, node.right, *_COMPUTED[type(node.op)])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            begin = place(node.lineno, node.col_offset)
            yield Mutant(module, begin, begin + len("not "), "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLED:
            if node.func.id == "sorted" and node.keywords:
                continue
            begin = place(node.func.lineno, node.func.col_offset)
            yield Mutant(module, begin, begin + len(node.func.id), _CALLED[node.func.id])
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            begin = place(node.lineno, node.col_offset)
            yield Mutant(module, begin, begin + len(str(node.value)), str(not node.value))
    yield from _of_sql(module, source, tree, place)


def _of_sql(module: str, source: str, tree: ast.Module, place: Callable[[int, int], int]) -> Iterator[Mutant]:
    words = {
        place(node.value.lineno, node.value.col_offset)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        begin = place(*token.start)
        if token.type != tokenize.STRING or begin in words or not SQL.search(token.string):
            continue
        left_out = [one.span() for one in re.finditer(r"--.*|\{[^{}]*\}", token.string)]
        for pattern, other in REPLACED:
            for found in re.finditer(pattern, token.string):
                if not any(start <= found.start() < end for start, end in left_out):
                    yield Mutant(module, begin + found.start(), begin + found.end(), other)


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module another text."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self._name, self._path, self._text = name, path, text

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=str(self._path))

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        exec(compile(self._text, str(self._path), "exec"), module.__dict__)


def write_ledgers(file: Path) -> bool:
    """Write every ledger that `tests/analysis` judges, by name: making them takes longer than judging them, and the
    tests' modules import what a mutant is to replace."""
    generate = importlib.import_module("tests.analysis.generate").generate
    seen = importlib.import_module("tests.analysis.test_what_was_seen")
    changes = importlib.import_module("tests.analysis.ledgers")
    details = importlib.import_module("tests.analysis.test_details")
    ledgers = {name: seen.ledger(case) for name, case in seen.CASES.items()}
    ledgers |= changes.judged_by_eye()
    ledgers |= {f"seed {seed}": generate(seed) for seed in range(LEDGERS)}
    for seed in range(LEDGERS_CHANGED):
        ledgers[f"seed {seed}, ended by others"] = changes.ended_by_others(generate(seed))
        ledgers[f"seed {seed}, coarse"] = changes.coarse(generate(seed), 500_000_000)
    file.write_bytes(pickle.dumps((ledgers, details.given())))
    return True


def explanations(given: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of what explains the verdict of each of the ledgers of `tests/analysis/test_details.py`."""
    modules = ("brokerdrill.analysis.details", "brokerdrill.analysis.judge", "brokerdrill.analysis.series")
    details, judge, series = (importlib.import_module(name) for name in modules)
    bucket_ns = importlib.import_module("brokerdrill.analysis.measures").bucket_ns
    in_process = importlib.import_module("tests.analysis.in_process")
    with in_process.judging(given, in_process.rows_of(given), parts=2, series=True) as found:
        finished = found.finish()
        widths = {run: bucket_ns(one.run_end) for run, one in finished.times.items()}
        with judge.database(finished.partials, widths) as base:
            results = details.explained(base, finished.results, finished.times)
            buckets = series.series_of(base, finished.times, results)
    return {
        f"explained {key}": digest((results[number].to_json(), buckets[number].to_json()))
        for number, key in enumerate(given)
    }


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def told(made: Mapping[str, Any], share: int = 1) -> dict[str, str]:
    """Return a digest of all that the analysis tells of each of the ledgers `made`, or of each `share`-th of them."""
    in_process = importlib.import_module("tests.analysis.in_process")
    ledgers = dict(list(made.items())[::share])
    with in_process.judging(ledgers, in_process.rows_of(ledgers), parts=3) as found:
        results = found.finish().results
    return {key: digest(results[number].to_json()) for number, key in enumerate(ledgers)}


def tests_fail(files: Sequence[str]) -> bool:
    import pytest

    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not long", *files]
    return int(pytest.main(words)) not in (0, 5)


def kills(module: str, made: Made, expected: Mapping[str, str]) -> bool:
    """Whether a check notices that `module` is another one (in a process that has not imported it yet)."""
    where, _, name = module.partition("/")
    if where == "runner":
        return tests_fail([f"tests/unit/runner/{test}.py" for test in RUNNER[name]])
    if name == "sums":
        return tests_fail(["tests/analysis/test_sums.py", "-k", "file"])
    if any(expected[key] != of for share in SHARES for key, of in told(made[0], share).items()):
        return True
    if any(expected[key] != of for key, of in explanations(made[1]).items()):
        return True
    return tests_fail([f"tests/analysis/test_{one}.py" for one in _UNITS])


def in_fork(work: Callable[[], Any], limit_s: float) -> Any:
    """Return what `work` returns in a fork (None: it raised, or hung)."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setpgrp()
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        answer: Any = None
        with contextlib.suppress(BaseException):
            answer = work()
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    data, end = b"", time.monotonic() + limit_s
    while (left := end - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        if not (block := os.read(reading, 1 << 16)):
            break
        data += block
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    return json.loads(data) if data else None


def tried(mutant: Mutant, source: str, made: Made, expected: Mapping[str, str]) -> str:
    """Return what became of a mutant: `lives`, or how it died."""
    name = "brokerdrill." + mutant.module.replace("/", ".")

    def work() -> bool:
        sys.meta_path.insert(0, _Mutated(name, PACKAGE / f"{mutant.module}.py", mutant.text(source)))
        return kills(mutant.module, made, expected)

    answer = in_fork(work, LIMIT_S)
    return {True: "noticed", False: "lives"}.get(answer, "ended")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="PART", help="Of modules whose names have one of these alone.")
    words = parser.parse_args()
    os.chdir(ROOT)
    for name in (
        "duckdb",
        "numpy",
        "pyarrow",
        "pyarrow.compute",
        "pyarrow.parquet",
        "pyspark.sql",
        "pytest",
        "hypothesis",
    ):
        importlib.import_module(name)
    modules = [f"analysis/{name}" for name in ANALYSIS] + [f"runner/{name}" for name in RUNNER]
    sources = {name: (PACKAGE / f"{name}.py").read_text() for name in modules}
    found = [one for name, source in sources.items() for one in mutants(name, source)]
    known = {line.partition(" # ")[0] for line in (HERE / "equivalent.txt").read_text().splitlines()}
    chosen = random.Random(words.seed).sample(found, min(words.mutants, len(found)))
    chosen = [one for one in chosen if not words.only or any(part in one.module for part in words.only)]
    lines = words.file.read_text().splitlines() if words.file.exists() else []
    done = {row["key"]: row for row in map(json.loads, lines)}
    with tempfile.NamedTemporaryFile() as file:
        if not in_fork(lambda: write_ledgers(Path(file.name)), LIMIT_S):
            raise SystemExit("the ledgers of the tests cannot be made")
        made = pickle.loads(Path(file.name).read_bytes())
    expected = in_fork(lambda: told(made[0]) | explanations(made[1]), LIMIT_S)
    few = in_fork(lambda: told(made[0], SHARES[0]), LIMIT_S)
    if not expected or not few or any(expected[key] != of for key, of in few.items()):
        raise SystemExit("the original itself cannot be judged, or not alike alone and beside others")
    outcomes: dict[str, int] = {}
    living = []
    for number, mutant in enumerate(chosen, 1):
        source = sources[mutant.module]
        line = mutant.line(source)
        key = hashlib.sha256(f"{mutant}{source}".encode()).hexdigest()[:16]
        if key in done:
            outcome = done[key]["outcome"]
        else:
            explained = line in known or line.removeprefix("analysis/") in known
            outcome = "equivalent" if explained else tried(mutant, source, made, expected)
            at = source.count("\n", 0, mutant.begin) + 1
            row = {"key": key, "outcome": outcome, "line": line, "at": at, "was": source[mutant.begin : mutant.end]}
            with words.file.open("a") as out:
                out.write(json.dumps(row | {"other": mutant.other}) + "\n")
            print(f"{number}/{len(chosen)} {outcome}: {line}", flush=True)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        living += [line] * (outcome == "lives")
    print("\n".join(living))
    print(f"{len(found)} mutants, {len(chosen)} drawn: {outcomes}")
    return 1 if living else 0


if __name__ == "__main__":
    raise SystemExit(main())
