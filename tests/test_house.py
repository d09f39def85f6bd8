"""House rules: strings name modules that exist, and nothing is loaded before it is needed."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from tools import check_house

SOURCE = Path(__file__).parents[1] / "src"
ROOMS = "app|cli|connect|core|declare|engine|errors|http|imports|log|sinks|spark|stores|testing"
NAMED = re.compile(rf"\bpenstock\.(?:{ROOMS})(?:\.[a-z_0-9]+)+")
HEAVY = {
    *("pyspark", "pandas", "pyarrow", "psycopg", "psycopg_pool", "sqlalchemy", "django", "adbc_driver_postgresql"),
    *("fastapi", "starlette", "uvicorn", "httpx", "pydantic"),
}


def named_in_strings() -> dict[str, str]:
    """Dotted paths into penstock that occur in strings, with their places."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found |= {name: f"{path}:{node.lineno}" for name in NAMED.findall(node.value)}
    return found


def resolves(name: str) -> bool:
    """Whether the path is a module or an attribute of one."""
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    module, _, attribute = name.rpartition(".")
    return hasattr(importlib.import_module(module), attribute)


def test_every_module_that_a_string_names_exists() -> None:
    found = named_in_strings()
    assert {
        "penstock.engine.local.pool_main",
        "penstock.engine.isolation.child",
        "penstock.spark.daemon",
    } <= found.keys()
    wrong = {where: name for name, where in found.items() if not resolves(name)}
    assert not wrong


def test_modules_preloaded_by_sparks_daemon_exist() -> None:
    """The daemon ignores modules that cannot be imported, because an extra may be missing; our own must exist."""
    from penstock.spark.daemon import OURS

    assert all(importlib.util.find_spec(name) is not None for name in OURS)


def test_commands_and_clauses_are_loaded_by_names_that_exist() -> None:
    from penstock.cli.app import FAMILIES
    from penstock.testing.clauses.registry import PAGES

    names = [f"penstock.cli.{one}" for one in FAMILIES] + [f"penstock.testing.clauses.{one}" for one in PAGES]
    assert all(importlib.util.find_spec(name) is not None for name in names)


def test_every_benchmark_can_be_imported() -> None:
    """They run seldom; a name that has moved must not be found only then."""
    folder = SOURCE.parent / "benchmarks"
    files = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py"))
    names = {".".join(path.parts) for path in files if not path.stem.startswith("_")}
    names -= {"pgqueuer_peer", "pgmq_peer"}  # need the peers' own environment
    assert {"appending", "claiming", "engine", "spark", "jobs.claims"} <= names
    for name in names:
        assert importlib.import_module(f"benchmarks.{name}").__file__


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running this code."""
    script = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_no_driver_no_spark_and_no_command_line() -> None:
    loaded = loaded_by("import penstock")
    assert not loaded & (HEAVY | {"typer", "rich", "sqlite3", "asyncio", "multiprocessing", "subprocess"})
    assert {name for name in loaded if name.startswith("penstock")} == {"penstock"}


def test_every_exported_name_is_found_and_every_other_is_refused() -> None:
    names = {name: getattr(penstock, name) for name in penstock.__all__}
    assert names["open"].__name__ == "open_log" and dir(penstock) == sorted(penstock.__all__)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        penstock.opne  # noqa: B018  # type: ignore[attr-defined]


def test_help_loads_neither_an_engine_nor_a_database() -> None:
    loaded = loaded_by("from penstock.cli.app import run; run(['--help'])")
    assert not loaded & (HEAVY | {"sqlite3", "asyncio", "multiprocessing"})
    rooms = ("penstock.engine", "penstock.spark", "penstock.stores", "penstock.testing", "penstock.log.log")
    assert not [name for name in loaded if name.startswith(rooms)]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(check_house, "SOURCE", tmp_path)
    return tmp_path


def test_ten_repeated_lines_are_found(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "\n".join(f"x{number} = {number}" for number in range(12))
    (house / "one.py").write_text(f"first = 1\n{said}\n")
    assert check_house.main() == 0
    (house / "two.py").write_text(f"def f():\n    {said}\n")
    assert check_house.main() == 1 and "one.py:2" in capsys.readouterr().out
    (house / "two.py").unlink()
    for dialect in check_house.DIALECTS:
        (house / dialect).mkdir()
        (house / dialect / "claim.sql").write_text(said.replace("=", "+"))
    assert check_house.main() == 0, "two dialects of one statement are allowed"


def test_a_long_module_is_found(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (house / "long.py").write_text("".join(f"x{number} = {number}\n" for number in range(401)))
    for number in range(2):
        (house / f"short{number}.py").write_text("")
    assert check_house.main() == 1 and "401 lines" in capsys.readouterr().out
