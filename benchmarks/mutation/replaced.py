"""What mutants of SQL within Python's strings have in place of what."""

from __future__ import annotations

import re

# Compared with a whole expression of strings: a part of it alone may hold no word of SQL.
SQL = re.compile(r"\b(SELECT|FROM|WHERE|JOIN|CASE WHEN|FILTER|GROUP BY|ORDER BY|coalesce)\b")
# What is replaced (a regular expression) by what.
REPLACED = (
    (r"(?<![<>=!])<(?![<>=])", "<="),
    (r"<=", "<"),
    (r"(?<![<>=!-])>(?![<>=])", ">="),
    (r">=", ">"),
    (r"(?<![<>=!:])=(?![<>=])", "<>"),
    (r"<>", "="),
    (r"\bAND\b", "OR"),
    (r"\bOR\b", "AND"),
    (r"\bNOT (?!NULL)", ""),
    (r"\bIS NULL\b", "IS NOT NULL"),
    (r"\bIS NOT NULL\b", "IS NULL"),
    (r"\bmin\(", "max("),
    (r"\bmax\(", "min("),
    (r"\barg_min\(", "arg_max("),
    (r"\barg_max\(", "arg_min("),
    (r"\bleast\(", "greatest("),
    (r"\bgreatest\(", "least("),
    (r"\bbool_or\(", "bool_and("),
    (r"\bbool_and\(", "bool_or("),
    (r"\bSEMI JOIN\b", "ANTI JOIN"),
    (r"\bANTI JOIN\b", "SEMI JOIN"),
    (r"\bDISTINCT ", ""),
    (r"\bUNION(?! ALL)", "UNION ALL"),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r" \+ ", " - "),
    (r" - ", " + "),
)
