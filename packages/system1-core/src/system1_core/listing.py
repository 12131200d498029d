"""What is installed, as tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from system1_core.checkpoint import is_pulled
from system1_core.family import ModelFamily
from system1_core.plugins import Plugins


def print_models(plugins: Plugins) -> None:
    """One line for each installed family."""
    table = Table("model", "answers", "images", "package", "what it is", box=None)
    for name, registered in sorted(plugins.families.items()):
        family = registered.value
        table.add_row(
            name,
            ", ".join(family.question_types),
            "yes" if family.accepts_images else "no",
            registered.distribution,
            family.description,
        )
    console = Console()
    if table.row_count:
        console.print(table)
    else:
        console.print("no model is installed: pip install models-mini")
    _print_broken(plugins, console)


def print_model(plugins: Plugins, family: ModelFamily) -> None:
    """One family whole: names, options, checkpoints."""
    console = Console()
    console.print(f"[bold]{family.name}[/bold]  {family.description}", highlight=False)
    console.print(f"package      {plugins.families[family.name].distribution}", highlight=False)
    console.print(f"aliases      {', '.join(family.aliases) or 'none'}", highlight=False)
    console.print(f"answers      {', '.join(family.question_types)}", highlight=False)
    console.print(f"images       {'yes' if family.accepts_images else 'no'}", highlight=False)
    console.print(f"devices      {', '.join(family.devices)}", highlight=False)
    if family.options:
        options = Table("option", "default", "meaning", box=None)
        for option in family.options:
            options.add_row(f"{family.name}.{option.name}", str(option.default), option.help)
        console.print(options)
    if family.checkpoints:
        checkpoints = Table("checkpoint", "repository", "revision", "here", box=None)
        for one in family.checkpoints:
            here = "yes" if is_pulled(one) else "no"
            checkpoints.add_row(one.name, one.repo, one.revision[:12], here)
        console.print(checkpoints)


def print_plugins(plugins: Plugins) -> None:
    """Every entry point of the group, the broken ones with the reason."""
    table = Table("plugin", "package", "version", "state", box=None)
    for plugin in plugins.plugins:
        state = f"broken: {plugin.error}" if plugin.error else "ok"
        table.add_row(plugin.name, plugin.distribution, plugin.version, state)
    Console().print(table)


def _print_broken(plugins: Plugins, console: Console) -> None:
    for plugin in plugins.broken:
        console.print(f"set aside: {plugin.name} of {plugin.distribution}: {plugin.error}")
