"""Links, headings and paths that the documents name exist. Each measured figure stands on one page."""

import re
from pathlib import Path

import pytest

from penstock.algorithm_lookup import find_algorithm
from penstock.config.fields import fields_of
from penstock.config.hyper_parameters import algorithm_fields
from penstock.config.schema import RunConfig
from penstock.registry import ALGORITHMS

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "src", "native", "tests", "benchmarks", "examples", "clients")
FILES = [
    path.relative_to(ROOT)
    for path in (*ROOT.glob("*.md"), *(found for folder in FOLDERS for found in (ROOT / folder).rglob("*.*")))
]
PAGES = [path for path in FILES if path.suffix == ".md"]
ARCHITECTURE = [path for path in PAGES if path.match("docs/architecture*") or path.match("docs/architecture/*")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FIGURE = re.compile(r"\d+\.\d{2,}|\d{2,}\.\d|\d+,\d{3}")
"""Figures of three digits and more: shorter ones stand elsewhere by chance."""
NAMED_PATH = re.compile(r"`([\w./-]+(?:\.py|\.hpp|\.cpp|\.md|/))`")


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page.parent / name).resolve() if name else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors(target.relative_to(ROOT)), f"{page} links to {link}"


@pytest.mark.parametrize("page", ARCHITECTURE, ids=str)
def test_every_path_that_the_architecture_names_exists(page: Path) -> None:
    names = {path.name for path in FILES}
    for path in NAMED_PATH.findall(prose(page)):
        found = any((base / path).exists() for base in (ROOT, ROOT / "src/penstock"))
        # A bare name may stand for a file of each of several folders: `spec.py`.
        assert found or ("/" not in path and path in names), f"{page} names {path}"


def test_every_module_is_on_a_page_of_the_architecture_or_its_folder_is() -> None:
    pages = "".join(prose(page) for page in ARCHITECTURE)
    named = set(re.findall(r"`([\w./<>-]+(?:\.py|/))`", pages))
    # Links are relative to the page.
    named |= set(re.findall(r"\]\([./]*src/penstock/([\w./]+)\)", pages))
    for path in FILES:
        if path.suffix != ".py" or not path.is_relative_to("src/penstock") or path.name == "__init__.py":
            continue
        module = path.relative_to("src/penstock")
        names = {str(module), *(f"{folder}/" for folder in module.parents)}
        if module.parts[0] == "algorithms":
            names.add(f"algorithms/<name>/{module.name}")
        assert names & named, f"no page of docs/architecture names {module}; where.md may be the right one"


@pytest.mark.parametrize(("page", "count"), [("reading", 23), ("reading-table", 37)])
def test_the_ways_through_the_code_name_what_their_files_define(page: str, count: int) -> None:
    tables = prose(Path(f"docs/architecture/{page}.md"))
    rows = re.findall(r"^\| \d+ \| (.+?) \| (.+?) \|", tables, flags=re.MULTILINE)
    files = [[(ROOT / "docs/architecture" / link).resolve() for link in LINK.findall(links)] for links, _ in rows]
    assert sum(map(len, files)) == count
    for paths, (_, names) in zip(files, rows, strict=True):
        text = "".join(path.read_text() for path in paths)
        for name in re.findall(r"\w+(?=`)", names):
            assert re.search(rf"(def|class) {name}\b", text), f"{paths} do not define {name}"


@pytest.mark.parametrize("name", ["architecture", "performance"])
def test_every_page_behind_an_entry_page_can_be_found(name: str) -> None:
    behind = {path for path in PAGES if path.parent == Path("docs", name)}
    assert len(behind) > 8
    assert behind <= {Path("docs", link.partition("#")[0]) for link in LINK.findall(prose(Path("docs", f"{name}.md")))}


def test_the_page_of_all_pages_leads_to_each() -> None:
    beside = {path for path in PAGES if path.parent == Path("docs")} - {Path("docs/README.md")}
    links = [Path("docs", link.partition("#")[0]) for link in LINK.findall(prose(Path("docs/README.md")))]
    assert beside <= set(links)
    assert len(links) == len(set(links)), "a page is listed once"


def test_the_page_of_all_algorithms_names_each_and_leads_to_all_pages_beside_it() -> None:
    folder = Path("docs/algorithms")
    text = prose(folder / "README.md")
    links = {folder / link.partition("#")[0] for link in LINK.findall(text)}
    assert {path for path in PAGES if path.parent == folder} - {folder / "README.md"} <= links
    rows = re.findall(r"^\| \[.+?\]\((\w+)\.md\) \|", text, flags=re.MULTILINE)
    assert sorted(rows) == sorted(ALGORITHMS.names())


def test_the_layers_of_the_architecture_are_those_of_the_contract() -> None:
    contract = (ROOT / ".importlinter").read_text().partition("layers =\n")[2].partition("\n\n")[0]
    layers = [re.findall(r"\w+", line) for line in contract.splitlines()]
    table = prose(Path("docs/architecture/packages.md")).partition("| layer |")[2].partition("\n\n")[0]
    assert [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]] == layers


@pytest.mark.parametrize("page", sorted((ROOT / "docs/performance").glob("*.md")), ids=lambda page: page.stem)
def test_the_main_figures_of_a_page_stand_there_alone(page: Path) -> None:
    """The README and the entry page link to them. A figure in two places is old in one of them some day."""
    rows = prose(page).partition("| what | measured |")[2].partition("\n\n")[0].splitlines()[2:]
    others = prose(Path("README.md")) + prose(Path("docs/performance.md"))
    for row in rows:
        for figure in FIGURE.findall(row.split("|")[2]):
            assert not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d.,]*\d)", others), (figure, row)


def test_what_other_libraries_call_a_setting_is_a_setting_here() -> None:
    settings = {field.name for name in ALGORITHMS.names() for field in algorithm_fields(find_algorithm(name))}
    settings |= {field.name for field in fields_of(RunConfig)}
    text = prose(Path("docs/from-stable-baselines3.md"))
    for heading in ("## Names", "## Callbacks"):
        rows = re.findall(r"^\| .+ \| (.+) \|$", text.partition(heading)[2].partition("\n## ")[0], flags=re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"`([a-z]+_[a-z_]+|lr|capacity|epochs|smoothing)\b", row)}
        assert len(named) > 3
        assert named <= settings
