"""Which temperature a question's logits are divided by."""

FEW = 3  # options; with more, chances are spread and the best temperature differs


def temperature_key(type: str, count: int) -> str:
    """The name of the temperature for a question of `count` options, levels or sides."""
    if type == "noul":
        return type
    return f"{type}.{'few' if count <= FEW else 'many'}"
