"""All layers and what they support, as a table: ``python docs/_site/layer_table.py`` prints it."""

from molattn.nn import LAYERS

_SUPPORT = {
    "Updates edges": lambda layer: layer.has("update_edges"),
    "Graph features": lambda layer: layer.has("global_dim"),
    "Updates graph": lambda layer: layer.has("update_global"),
    "Gates": lambda layer: layer.has("gate"),
    "Weights sum to 1": lambda layer: layer.normalized,
}


def layer_table() -> str:
    """Make the table of the page of all layers, in Markdown."""
    columns = ["`name`", "Layer", "What it is", "Source", "Edge features", *_SUPPORT]
    rows = [columns, ["---"] * len(columns)]
    for name, layer in LAYERS.items():
        described = [f"`{name}`", f"`{layer.conv.__name__}`", layer.summary, layer.source]
        supported = ["yes" if has(layer) else "-" for has in _SUPPORT.values()]
        rows.append([*described, ", ".join(layer.edge_columns) or "any", *supported])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(layer_table())
