"""Mutants of the rules of the analysis, one changed operator each: how many the fast tests let live.

    .venv/bin/pip install uv && .venv/bin/uv pip install --python .venv --group mutation
    .venv/bin/python benchmarks/mutation/run.py [--mutants 200] [--seed 1] [--only FILE[:LINE] ...]

Cosmic Ray changes an operator of Python or, by `operators.py`, of the SQL in a copy of the checkout; not where nothing
is run: in annotations. Generated ledgers are judged by the mutant beside the oracle and the snapshot of all that is
told (`one_process.py`: in seconds); a mutant that lives is given to the fast tests of the analysis, too. Not tried are
those in `equivalent.txt`, whose lines say why a mutant (FILE: changed line) tells nothing else than the original.
Printed are the survivors as diffs and how many there were; exit status 1: there is one.
"""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.operators.operator import Operator
from cosmic_ray.work_item import MutationSpec, TestOutcome
from operators import OwnOperators

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ANALYSIS = "chaos/brokerdrill/analysis"
# What decides; what reads, carries and stores has tests of another kind.
RULES = (
    *("activity", "clients", "gaps", "groups", "judge", "measures", "messages", "routes", "series", "tables"),
    "timeline",
    *(f"checks/{path.stem}" for path in sorted((ROOT / ANALYSIS / "checks").glob("[a-z]*.py"))),
)
OPERATORS = (
    "ReplaceComparisonOperator_",
    "ReplaceBinaryOperator_",
    "ReplaceUnaryOperator_",
    *(
        "ReplaceAndWithOr",
        "ReplaceOrWithAnd",
        "ReplaceTrueWithFalse",
        "ReplaceFalseWithTrue",
        "AddNot",
        "Sql",
        "Extreme",
    ),
)
LEDGERS = 300
# A mutant may take so many times as long as the original.
PATIENCE = 10
# Those that need no Spark first: a mutant dies early.
FAST_TESTS = " ".join(
    f"tests/analysis/test_{name}.py"
    for name in (
        *("moments", "moments_of_alerts", "moments_of_epochs", "moments_of_faults", "rounds", "timeline", "series"),
        *("shown", "ordered", "side_by_side", "small_ledgers", "clients", "borders"),
        *("spool", "details", "checks_can_fail", "synthesize"),
    )
)


def neighbours(name: str) -> bool:
    """Whether an operator's change is small: any other comparison or arithmetic would be noticed sooner."""
    before, _, after = name.rpartition("_")
    close = {
        "ReplaceComparisonOperator": {
            "Lt_LtE",
            "LtE_Lt",
            "Gt_GtE",
            "GtE_Gt",
            "Eq_NotEq",
            "NotEq_Eq",
            "Is_IsNot",
            "IsNot_Is",
        },
        "ReplaceBinaryOperator": {"Add_Sub", "Sub_Add", "BitAnd_BitOr", "BitOr_BitAnd", "FloorDiv_Mul", "Mul_FloorDiv"},
        "ReplaceUnaryOperator": {"Delete_Not", "Delete_Invert", "Delete_USub"},
    }
    kind, _, source = before.partition("_")
    return f"{source}_{after}" in close[kind] if kind in close else True


def annotations(path: Path) -> set[tuple[int, int]]:
    """Return the places (line, column) of a module that are in annotations."""
    tree = ast.parse(path.read_text())
    found = [
        note
        for node in ast.walk(tree)
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if note is not None
    ]
    return {
        (line, column)
        for note in found
        for line in range(note.lineno, (note.end_lineno or note.lineno) + 1)
        for column in range(
            note.col_offset if line == note.lineno else 0,
            (note.end_col_offset or 0) if line == note.end_lineno else 1000,
        )
    }


def mutations(path: Path) -> Iterator[MutationSpec]:
    """Yield every change that an operator can make to what a module runs."""
    tree = get_ast_from_path(path)
    annotated = annotations(path)
    for name in cosmic_ray.plugins.operator_names():
        kind = name.split("/")[1]
        if not kind.startswith(OPERATORS) or not neighbours(kind):
            continue
        operator: Operator = cosmic_ray.plugins.get_operator(name)()
        positions = (position for node in ast_nodes(tree) for position in operator.mutation_positions(node))
        for occurrence, (begin, end) in enumerate(positions):
            if begin not in annotated:
                yield MutationSpec(path, name, occurrence, begin, end)


def changed(diff: str) -> str:
    """Return the lines that a mutant has instead of the original's, without their indentation."""
    lines = [line for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    return " ".join(line[1:].strip() for line in lines)


def copied(into: Path) -> Path:
    """Copy the files of the checkout, so that its own never change."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, check=True, capture_output=True).stdout
    tar = subprocess.run(
        ["tar", "--null", "-T", "-", "-cf", "-"], cwd=ROOT, input=names, check=True, capture_output=True
    )
    subprocess.run(["tar", "-xf", "-"], cwd=into, input=tar.stdout, check=True)
    return into


def place(mutant: MutationSpec, copy: Path) -> str:
    """Return FILE:LINE of a mutant."""
    return f"{mutant.module_path.relative_to(copy / ANALYSIS)}:{mutant.start_pos[0]}"


def lived_through(name: str, command: str, mutants: Sequence[MutationSpec], copy: Path) -> list[MutationSpec]:
    """Return those that a command, which the original passes, lets live. What hangs has not lived."""
    began = time.monotonic()
    original = subprocess.run(command, shell=True, capture_output=True, text=True)
    if original.returncode:
        raise SystemExit(f"{name}: the original itself does not pass:\n{original.stdout}{original.stderr}")
    limit_s = PATIENCE * (time.monotonic() - began)
    living = []
    for number, mutant in enumerate(mutants, 1):
        result = mutate_and_test([mutant], command, limit_s)
        outcome = "hangs" if result.output == "timeout" else str(result.test_outcome)
        if result.test_outcome == TestOutcome.SURVIVED:
            living.append(mutant)
        print(f"{name} {number}/{len(mutants)} {place(mutant, copy)} {mutant.operator_name} {outcome}", flush=True)
    return living


def shown(mutant: MutationSpec, copy: Path) -> tuple[str, str]:
    """Return a mutant as `equivalent.txt` names it, and its diff."""
    diff = mutate_and_test([mutant], "true", 60).diff
    return f"{mutant.module_path.relative_to(copy / ANALYSIS)}: {changed(diff)}", diff


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mutants", type=int, default=200, help="How many are drawn (default 200).")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="FILE[:LINE]", help="From those of these places alone.")
    words = parser.parse_args()
    cosmic_ray.plugins.OPERATOR_PROVIDERS["own"] = OwnOperators()
    known = {line.partition(" # ")[0] for line in (HERE / "equivalent.txt").read_text().splitlines()}
    with tempfile.TemporaryDirectory(prefix="brokerdrill-mutants-") as scratch:
        copy = copied(Path(scratch))
        found = [one for name in RULES for one in mutations(copy / ANALYSIS / f"{name}.py")]
        if words.only:
            found = [one for one in found if {(where := place(one, copy)), where.partition(":")[0]} & {*words.only}]
        chosen = random.Random(words.seed).sample(found, min(words.mutants, len(found)))
        living = [one for one in chosen if shown(one, copy)[0] not in known]
        equivalent = len(chosen) - len(living)
        print(f"{len(found)} mutants, {len(chosen)} drawn, {len(living)} tried", flush=True)
        within = f"sh -c 'cd {copy} && PYTHONPATH={copy}/chaos:{copy} exec {sys.executable}"
        quick = f"{within} benchmarks/mutation/one_process.py {copy}/expected.pickle {LEDGERS}'"
        fast = f'{within} -m pytest -x -q -p no:cacheprovider -m "not long" {FAST_TESTS}\''
        for name, command in (("in one process", quick), ("fast tests", fast)):
            living = lived_through(name, command, living, copy)
        for mutant in living:
            print(shown(mutant, copy)[1])
    print(f"{len(chosen)} mutants: {len(living)} live that nobody explains, {equivalent} are equivalent")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
