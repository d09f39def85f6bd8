"""The project's own rules: finished ids have tests, skips are listed, and test workers share the tests by files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import skips, two_ends
from tests.support.thinned import THINNED

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    rows = "| id | what | tests |\n|----|----|----|\n| K01 | append | a |\n| S02 | spark | b |\n"
    (tmp_path / "docs/roadmap.md").write_text(f"# Roadmap\n\n## Finished ids\n\n{rows}\n## Next\n\n| K03 | later | |\n")
    return tmp_path


def check_acceptance(project: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/check_acceptance.py", project],
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_ids_on_functions_classes_and_modules_count(project: Path) -> None:
    (project / "tests/test_a.py").write_text(
        "import pytest\npytestmark = [pytest.mark.shows('S02')]\n@pytest.mark.shows('K01', 'K09')\ndef test_a(): ...\n"
    )
    assert check_acceptance(project) == (0, "2 finished ids, all shown by tests\n")


def test_a_finished_id_without_a_test_fails(project: Path) -> None:
    (project / "tests/test_a.py").write_text(
        "import pytest\n@pytest.mark.shows('K01')\nclass TestA:\n    def test_a(self): ...\n"
    )
    assert check_acceptance(project) == (1, "S02 is finished in docs/roadmap.md, but no test shows it\n")


def test_a_test_with_an_invalid_id_fails(project: Path) -> None:
    (project / "tests/test_a.py").write_text(
        "import pytest\n@pytest.mark.shows('K01', 'S02', 'Q7')\ndef test_a(): ...\n"
    )
    assert check_acceptance(project) == (1, "tests/test_a.py:2: Q7: ids look like K01\n")


def test_a_roadmap_without_the_section_fails(project: Path) -> None:
    (project / "docs/roadmap.md").write_text("# Roadmap\n")
    assert check_acceptance(project)[0] == 1


def test_only_listed_prefixes_may_be_skipped(tmp_path: Path) -> None:
    listed = tmp_path / "skips.txt"
    listed.write_text("# a comment\n\ntests/test_a.py::  # needs a broker\ntests/test_b.py::test_x[1]  # slow # here\n")
    allowed = skips.read_allowed(listed)
    assert allowed == {"tests/test_a.py::": "needs a broker", "tests/test_b.py::test_x[1]": "slow # here"}
    skipped = ["tests/test_a.py::test_1", "tests/test_b.py::test_x[1]", "tests/test_b.py::test_x[2]"]
    assert skips.unexpected(skipped, allowed) == ["tests/test_b.py::test_x[2]"]
    assert skips.unexpected(skipped, []) == sorted(skipped)


def test_a_listed_skip_needs_a_reason(tmp_path: Path) -> None:
    (tmp_path / "skips.txt").write_text("tests/test_a.py\n")
    with pytest.raises(ValueError, match=r"skips\.txt:1"):
        skips.read_allowed(tmp_path / "skips.txt")


@pytest.mark.parametrize(
    ("variable", "options", "status"),
    [("CI", [], 1), ("PENSTOCK_STRICT_SKIPS", ["-n", "1"], 1), ("UNRELATED", [], 0)],
    ids=["ci", "asked-in-parallel", "not-strict"],
)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param("def test_a(): pytest.skip('why')", id="test"),
        pytest.param("pytest.skip('why', allow_module_level=True)", id="module"),
    ],
)
def test_an_unlisted_skip_fails_a_strict_run(
    tmp_path: Path, variable: str, options: list[str], status: int, body: str
) -> None:
    # One test that passes, because a run without any has its own exit status.
    files = {"test_skipping.py": f"import pytest\n{body}\n", "test_passing.py": "def test_passing(): ...\n"}
    done = run_tests(tmp_path, files, *options, **{variable: "1"})
    assert done.returncode == status, done.stdout + done.stderr
    assert ("not listed in tests/skips.txt" in done.stdout) == bool(status)


def test_handler_processes_do_not_load_pytest() -> None:
    """Tests start hundreds of them, and each would take twice as long."""
    names = (
        "batch_handlers",
        "chaos_app",
        "dies_while_loading",
        "jobs",
        "odd_exceptions",
        "odd_reports",
        "slow_to_load",
    )
    modules = ", ".join(f"tests.support.children.{name}" for name in names)
    code = f"import sys, {modules}; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_workers_take_whole_files_from_two_ends() -> None:
    files = ["tests/a/test_1.py", "tests/spark/test_2.py", "tests/a/test_3.py", "tests/examples/test_4.py"]
    assert {*two_ends.in_order(files)[:2]} == {files[1], files[3]}
    known = [*two_ends.LONG[::-1], *files]
    ordered = two_ends.in_order(known)
    assert (ordered[0], ordered[-1]) == (
        next(one for one in two_ends.LONG if one.startswith(two_ends.SPARK)),
        next(one for one in two_ends.LONG if not one.startswith(two_ends.SPARK)),
    )
    assert all((ROOT / one).is_file() for one in two_ends.LONG), "files that were renamed"


def test_a_file_has_one_worker_and_spark_the_first(tmp_path: Path) -> None:
    """Run pytest with this project's conftest, with two workers."""
    body = "import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test_it(n): ...\n"
    files = dict.fromkeys(["spark/test_x.py", "spark/test_y.py", "test_a.py", "test_b.py", "test_c.py"], body)
    done = run_tests(tmp_path, files, "-n", "2", "--dist", "loadfile", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^\[(gw\d)\].* PASSED tests/(\S+)::", done.stdout, re.MULTILINE)
    assert len(ran) == 9 * len(files)
    workers = dict(map(reversed, ran))
    assert {*ran} == {(worker, file) for file, worker in workers.items()}, "a file was split"
    first = {worker: file for worker, file in reversed(ran)}
    assert first["gw0"].startswith("spark/") and not first["gw1"].startswith("spark/")


def run_tests(
    directory: Path, files: dict[str, str], *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest with this project's conftest on these files."""
    tests = directory / "tests"
    for name, text in {"__init__.py": "", **files}.items():
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        (tests / name).write_text(text)
    for name in ("conftest.py", "skips.txt", "support"):
        (tests / name).symlink_to(ROOT / "tests" / name)
    (directory / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PENSTOCK_STRICT_SKIPS")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=directory,
        env={**environment, **variables},
        check=False,
        capture_output=True,
        text=True,
    )


def test_tests_that_are_thinned_exist() -> None:
    """Renamed, a test would be run in full again, and nobody would notice."""
    for path, names in THINNED.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        assert all(f"def {name.partition('[')[0]}(" in text for name in names), path
