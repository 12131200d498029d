"""The `system1` command."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler

from system1_core import __version__
from system1_core.errors import CheckpointError, ConfigError, PluginError, System1Error

app = typer.Typer(
    name="system1",
    help="Serve decision models: typed questions about a state, answered with probabilities.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
stderr = Console(stderr=True)

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME[=FOLDER]]...",
        help="Models to serve, each optionally from a local folder. None: the installed default.",
        show_default=False,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME.KEY=VALUE",
        help="A setting of one model; `system1 models NAME` lists them. Repeatable.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or fp8.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"system1-core {__version__}")
        raise typer.Exit


@app.callback()
def system1(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Serve decision models: typed questions about a state, answered with probabilities."""


@app.command()
def serve(
    models: Models = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    device: Device = "auto",
    dtype: Dtype = "auto",
    profile: Annotated[
        str,
        typer.Option(
            help="protocol: the official answers. reference: those of the model's original code."
        ),
    ] = "protocol",
    scheduler: Annotated[str, typer.Option(help="batch, serial or a plugin's.")] = "batch",
    option: Options = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="Accepted bearer keys, one a line; without it, no keys.")
    ] = None,
    require_pinned: Annotated[
        bool, typer.Option(help="Refuse checkpoints that no pinned hash or revision proves.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option(help="Answers bit for bit independent of what else runs.")
    ] = False,
    root_path: Annotated[
        str, typer.Option(help="Path prefix behind a reverse proxy, for instance /decide.")
    ] = "",
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="Browser origin to allow; repeatable. Off by default.")
    ] = None,
    request_timeout: Annotated[float, typer.Option(help="Seconds until a request gets 504.")] = 60,
    body_timeout: Annotated[float, typer.Option(help="Seconds for a body to arrive.")] = 10,
    drain_timeout: Annotated[float, typer.Option(help="Seconds to finish after SIGTERM.")] = 30,
    max_body_mib: Annotated[int, typer.Option(help="Body limit in MiB, as sent.")] = 32,
    max_decoded_mib: Annotated[int, typer.Option(help="Body limit in MiB, decompressed.")] = 64,
    max_text_chars: Annotated[
        int, typer.Option(help="Characters of state and questions in a request.")
    ] = 400_000,
    max_questions: Annotated[int, typer.Option(help="Questions in a request.")] = 256,
    max_queue: Annotated[int, typer.Option(help="Requests waiting, above that 529.")] = 1024,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve models over HTTP until SIGTERM."""
    from system1_core.config import ModelChoice, ServeConfig, above_zero
    from system1_core.plugins import discover
    from system1_core.run import serve as serve_until_signal
    from system1_core.wire.dialect import RequestLimits
    from system1_core.wire.transport import TransportLimits

    _log(log_level)
    for name, value in (
        ("--max-body-mib", max_body_mib),
        ("--max-decoded-mib", max_decoded_mib),
        ("--body-timeout", body_timeout),
    ):
        above_zero(name, value)
    config = ServeConfig(
        models=[ModelChoice.parse(text) for text in models or ()],
        options=option or (),
        host=host,
        port=port,
        device=device,
        dtype=dtype,
        profile=profile,
        scheduler=scheduler,
        deterministic=deterministic,
        require_pinned=require_pinned,
        api_key_file=api_key_file,
        cors_origins=cors_origin or (),
        root_path=root_path.rstrip("/"),
        request_timeout_s=request_timeout,
        drain_timeout_s=drain_timeout,
        max_queued_requests=max_queue,
        transport=TransportLimits(
            max_body_bytes=max_body_mib * 2**20,
            max_decoded_bytes=max_decoded_mib * 2**20,
            body_timeout_s=body_timeout,
        ),
        limits=RequestLimits(max_questions=max_questions, max_text_chars=max_text_chars),
    )
    plugins = discover()
    for plugin in plugins.broken:
        stderr.print(f"set aside: plugin {plugin.name} of {plugin.distribution}: {plugin.error}")
    serve_until_signal(config, plugins)


@app.command()
def ask(
    state: Annotated[
        str | None,
        typer.Argument(
            help="The state; - reads it from standard input. None: an example.", show_default=False
        ),
    ] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(metavar='"QUESTION | A | B=DESCRIPTION"', help="Pick one option."),
    ] = None,
    score: Annotated[
        list[str] | None, typer.Option(metavar='"QUESTION | LOWEST | ..."', help="Rate by levels.")
    ] = None,
    noul: Annotated[list[str] | None, typer.Option(metavar='"QUESTION"', help="Yes or no.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME[=FOLDER]", help="Which model.")] = None,
    option: Options = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    url: Annotated[
        str | None, typer.Option(help="Ask a running server instead of loading the model here.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="SYSTEM1_API_KEY", help="Key of that server.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the response body.")] = False,
) -> None:
    """Ask one decision from the shell and show it as bars."""
    from system1_core.ask import ask_here, ask_server, print_answers, request_body
    from system1_core.config import ModelChoice, ServeConfig

    _log("warning")
    if state == "-":
        state = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    body = request_body(state, choice or (), score or (), noul or ())
    if url is not None:
        body, response = ask_server(url, api_key, model, body)
    else:
        models = [ModelChoice.parse(model)] if model else []
        config = ServeConfig(models=models, options=option or (), device=device, dtype=dtype)
        body, response = ask_here(config, body)
    print_answers(body, response, as_json=as_json)


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Show one model whole.")] = None,
) -> None:
    """List the installed models, or one with its options and checkpoints."""
    from system1_core.listing import print_model, print_models
    from system1_core.plugins import discover

    plugins = discover()
    if name is None:
        print_models(plugins)
    else:
        print_model(plugins, plugins.family(name))


@app.command(name="plugins")
def list_plugins() -> None:
    """List the installed plugins, the broken ones with the reason."""
    from system1_core.listing import print_plugins
    from system1_core.plugins import discover

    print_plugins(discover())


@app.command()
def pull(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Models, or single checkpoints.")
    ],
    offline: Annotated[bool, typer.Option(help="Only verify what is here.")] = False,
) -> None:
    """Fetch a model's pinned checkpoints and verify their hashes."""
    from system1_core.checkpoint import pull_family
    from system1_core.plugins import discover

    _log("info")
    plugins = discover()
    for family, checkpoints in [plugins.pullable(name) for name in names]:
        for checkpoint, folder in pull_family(family, checkpoints, offline=offline).items():
            print(f"{family.name} {checkpoint} {folder}")


@app.command()
def export(
    model: Annotated[str, typer.Argument(metavar="NAME[=FOLDER]", help="The model to merge.")],
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    option: Options = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
) -> None:
    """Merge a model's adapter into its base, once, with a hashed manifest."""
    from system1_core.config import ModelChoice, ServeConfig
    from system1_core.engines import export_model
    from system1_core.plugins import discover

    _log("info")
    choice = ModelChoice.parse(model)
    config = ServeConfig(models=[choice], options=option or (), device="cpu", dtype=dtype)
    print(export_model(config, discover(), out))


@app.command(name="build-kernels")
def build_kernels() -> None:
    """Compile the kernels of the installed backends for this machine, ahead of the first use."""
    from system1_core.plugins import discover

    _log("info")
    backends = [registered.value for registered in discover().backends.values()]
    built = [backend.build_kernels() for backend in backends if backend.is_available()]
    libraries = [str(library) for library in built if library is not None]
    print("\n".join(libraries) or "no installed backend has kernels to compile for this machine")


@app.command()
def check(
    models: Models = None,
    option: Options = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    deterministic: Annotated[bool, typer.Option(help="As `system1 serve` takes it.")] = False,
) -> None:
    """Load models and send each its example request through the full path."""
    from system1_core.ask import check_models
    from system1_core.config import ModelChoice, ServeConfig

    _log("warning")
    chosen = [ModelChoice.parse(text) for text in models or ()]
    config = ServeConfig(
        models=chosen, options=option or (), device=device, dtype=dtype, deterministic=deterministic
    )
    check_models(config)


def _log(level: str) -> None:
    levels = {"debug": 10, "info": 20, "warning": 30, "error": 40}
    if level not in levels:
        raise ConfigError(f"--log-level {level!r}: expected one of {', '.join(levels)}")
    handler = RichHandler(console=stderr, show_path=False, markup=False, highlighter=None)
    for library in ("httpx", "httpcore", "urllib3"):  # a line for each request, at "info"
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.basicConfig(level=levels[level], format="%(message)s", handlers=[handler], force=True)


def main() -> Any:
    """Entry point: start-up errors become one line on standard error and exit status 2."""
    try:
        return app()
    except (ConfigError, PluginError, CheckpointError) as error:
        stderr.print(
            f"system1: {error}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(2)
    except System1Error as error:
        stderr.print(
            f"system1: {error.message}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
