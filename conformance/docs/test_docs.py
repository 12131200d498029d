"""What the documentation says, compared with what is."""

from __future__ import annotations

import ast
import json
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from serving import SYSTEM1, Serving, serving
from system1_core import errors, hookspecs
from system1_core.cli import app
from system1_core.family import ModelFamily
from system1_core.metrics import Metrics
from system1_core.testing.server import TestServer

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted([REPOSITORY / "README.md", *DOCS.rglob("*.md"), *REPOSITORY.glob("*/*/README.md")])
BLOCK = re.compile(r"^ *```(\w*)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# The HTTP protocol gives these before a route is found; they are no error classes.
BELOW_THE_ROUTES = [("400", "bad_request"), ("431", "headers_too_large")]
COMMAND = re.compile(r"\bsystem1 ([a-z-]+)([^\n`#]*)")


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """(title, text) of a page's code blocks in these languages."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return [(title, text) for language, title, text in found if language in languages]


def every_block(*languages: str) -> list[Any]:
    return [
        pytest.param(title, text, id=f"{name_of(page)} {number}")
        for page in PAGES
        for number, (title, text) in enumerate(blocks(page, *languages))
    ]


def commands() -> dict[str, Any]:
    """The subcommands of `system1`, as click sees them."""
    group: Any = typer.main.get_command(app)
    found: dict[str, Any] = group.commands
    return found


@cache
def options() -> dict[str, set[str]]:
    """Every option by command, as the command line declares them."""
    return {
        name: {"--help"}.union(*([*one.opts, *one.secondary_opts] for one in command.params))
        for name, command in commands().items()
    }


def test_there_are_pages() -> None:
    assert len(PAGES) > 8


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_shown_exists(page: Path) -> None:
    text = page.read_text("utf-8").replace("\\\n", " ")
    for command, rest in COMMAND.findall(text):
        if command not in options():
            # Prose such as "system1 is": only a command when it is set as code.
            assert f"`system1 {command}" not in text, f"system1 {command}"
            continue
        shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
        assert shown <= options()[command], f"system1 {command}{rest}"


def test_every_option_of_serve_is_documented_with_its_default() -> None:
    page = (DOCS / "serve.md").read_text("utf-8")
    rows = re.findall(r"^\| (`--[^|]*) \| *([^|]*?) *\|", page, re.MULTILINE)
    documented = {
        option: default for names, default in rows for option in re.findall(r"`(--.*?)`", names)
    }
    declared = {name for name in options()["serve"] if name.startswith("--")} - {"--help"}
    assert documented.keys() == declared
    for parameter in commands()["serve"].params:
        default, option = parameter.default, parameter.opts[0]
        if option.startswith("--") and default and not isinstance(default, bool):
            assert documented[option] == f"`{default}`"


def test_every_command_is_documented() -> None:
    page = (DOCS / "serve.md").read_text("utf-8")
    assert [name for name in commands() if f"system1 {name}" not in page] == []


def test_the_hooks_listed_are_the_hooks_there_are() -> None:
    page = (DOCS / "hooks.md").read_text("utf-8")
    listed = re.findall(r"^\| `(system1_register_\w+)`", page, re.MULTILINE)
    assert listed == [name for name in vars(hookspecs) if name.startswith("system1_register_")]


def test_the_fields_of_a_family_are_listed() -> None:
    page = (DOCS / "write-a-model.md").read_text("utf-8")
    table = page.split("| field of `ModelFamily` |")[1].split("\n\n")[0]
    named = [
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert sorted(set(named)) == sorted(ModelFamily.__slots__)


def test_the_metrics_listed_are_the_metrics_there_are() -> None:
    page = (DOCS / "serve.md").read_text("utf-8")
    listed = re.findall(r"^\| `(system1_\w+)`", page, re.MULTILINE)
    exposed = re.findall(r"^# TYPE (\w+) \w+$", Metrics().render().decode(), re.MULTILINE)
    assert set(listed) == {name for name in exposed if not name.endswith("_created")}


def test_the_statuses_listed_are_the_error_classes_there_are() -> None:
    page = (DOCS / "serve.md").read_text("utf-8")
    listed = re.findall(r"^\| (\d{3}) \| `(\w+)`", page, re.MULTILINE)
    classes = errors.System1Error.__subclasses__()
    raised = [(str(one.status), one.error_type) for one in sorted_by_status(classes)]
    assert [one for one in listed if one not in BELOW_THE_ROUTES] == raised
    assert set(BELOW_THE_ROUTES) <= set(listed)


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (BELOW_THE_ROUTES[0], b"this is no HTTP\r\n\r\n"),
        (BELOW_THE_ROUTES[1], b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000 + b"\r\n\r\n"),
    ],
    ids=["400", "431"],
)
def test_the_errors_below_the_routes_are_given(
    mini: TestServer, error: tuple[str, str], sent: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", mini.port), timeout=30) as connection:
        connection.sendall(sent)
        reply = connection.makefile("rb").read().decode()
    assert reply.split()[1] == error[0]
    assert json.loads(reply.partition("\r\n\r\n")[2])["detail"]["error_type"] == error[1]


def sorted_by_status(
    classes: list[type[errors.System1Error]],
) -> list[type[errors.System1Error]]:
    return sorted(classes, key=lambda one: one.status)


@pytest.mark.parametrize(("title", "text"), every_block("python"))
def test_python_compiles_and_excerpts_are_from_the_template(title: str, text: str) -> None:
    file = re.search(r'title="([\w.]+)"', title)
    if file is None:
        ast.parse(text)
        return
    (source,) = (REPOSITORY / "examples/models-coin").rglob(file[1])
    assert text.rstrip() in source.read_text("utf-8")


@pytest.mark.parametrize(("title", "text"), every_block("json"))
def test_json_is_json(title: str, text: str) -> None:
    json.loads(text)


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving("mini", log=tmp_path_factory.mktemp("server") / "log.txt") as server:
        yield server


def requests() -> list[Any]:
    """Bodies for /v1/systemone and its batch route: JSON blocks, and what curl sends."""
    found = []
    for page in PAGES:
        texts = [text for _, text in blocks(page, "json")]
        for _, shell in blocks(page, "sh"):
            texts += re.findall(r"/v1/systemone -d '(.*?)'", shell, re.DOTALL)
        bodies = [text for text in texts if '"questions": {' in text]
        found += [pytest.param(text, id=f"{name_of(page)} {i}") for i, text in enumerate(bodies)]
    return found


@pytest.mark.parametrize("body", requests())
def test_a_request_shown_is_answered(mini: TestServer, body: str) -> None:
    # Another model's example shows a form that every model takes.
    asked = json.loads(body) | {"model": "jev-latest"}
    route = "/v1/systemone/batch" if "states" in asked else "/v1/systemone"
    reply = mini.post(route, asked)
    assert reply.status == 200, reply.body.decode()
    results = reply.json["results"] if "states" in asked else [reply.json]
    assert len(results) == len(asked.get("states", ["one"]))
    for result in results:
        assert list(result["answers"]) == list(asked["questions"])


def test_the_statuses_of_the_json_errors_shown_are_given(mini: TestServer) -> None:
    reply = mini.post("/v1/systemone", {"model": "gpt-0", "state": "x", "questions": {}})
    assert f'"{reply.json["detail"]["message"]}"' in (DOCS / "serve.md").read_text("utf-8")


def shares(shown: str) -> dict[str, float]:
    """Percentages by label, as `system1 ask` draws them."""
    rows = re.findall(r"^ *(\S.*?) +█* +([\d.]+)%", shown, re.MULTILINE)
    return {label: float(percent) for label, percent in rows}


def test_the_answer_that_the_readme_shows_is_the_answer_given() -> None:
    readme = REPOSITORY / "README.md"
    (command,) = [text for _, text in blocks(readme, "sh") if text.startswith("system1 ask")]
    (shown,) = [text for _, text in blocks(readme, "text") if "█" in text]
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    done = subprocess.run([SYSTEM1, *arguments], capture_output=True, text=True, check=True)
    expected = shares(shown)
    assert len(expected) == 5
    assert shares(done.stdout) == pytest.approx(expected, abs=1)


def test_the_body_that_the_readme_shows_is_the_body_given(mini: TestServer) -> None:
    readme = REPOSITORY / "README.md"
    (asked,) = re.findall(r"/v1/systemone -d '(.*?)'", readme.read_text("utf-8"), re.DOTALL)
    (shown,) = [json.loads(text) for _, text in blocks(readme, "text") if text.startswith("{")]
    reply = mini.post("/v1/systemone", asked.encode()).json
    assert reply["usage"] == shown["usage"]
    topic, refund = (reply["answers"][name] for name in ("topic", "refund"))
    assert topic["probabilities"] == pytest.approx(
        shown["answers"]["topic"]["probabilities"], abs=0.01
    )
    assert refund["noul"] == pytest.approx(shown["answers"]["refund"]["noul"], abs=0.01)


def test_ci_runs_the_readmes_test_command() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    commands = [text for _, text in blocks(REPOSITORY / "README.md", "sh")]
    (command,) = [text.strip() for text in commands if "nox" in text]
    assert command.splitlines()[0] in (REPOSITORY / ".ci/run").read_text("utf-8")
    assert readme.index("system1 serve") < readme.index(command)


def test_no_page_names_a_folder_of_somebodys_machine() -> None:
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(root|home|work|tmp)/", page.read_text("utf-8")), page


def test_the_shell_blocks_parse() -> None:
    for page in PAGES:
        for _, text in blocks(page, "sh"):
            if "[" in text.split("\n")[0]:  # a synopsis, not a command
                continue
            done = subprocess.run(
                ["bash", "-n"], input=text, text=True, capture_output=True, check=False
            )
            assert done.returncode == 0, f"{name_of(page)}: {done.stderr}"
