"""Imports of the library go one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dlock

#: Each imports only what stands before it, also for types.
ORDER = (
    "_errors _options _connect _events _query _hold _link _core _cores _held _sync _aio _drop_in aio __init__".split()
)
SOURCES = {path.stem: path for path in Path(dlock.__file__).parent.glob("*.py") if path.stem != "testing"}


def test_order_has_all_modules() -> None:
    assert sorted(ORDER) == sorted(SOURCES)


@pytest.mark.parametrize("module", ORDER)
def test_module_imports_only_what_stands_before_it(module: str) -> None:
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            names = [node.module] if node.module else [each.name for each in node.names]
            assert {str(name) for name in names} <= set(ORDER[: ORDER.index(module)])
