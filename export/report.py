"""What an export has written, as a table on the terminal."""

from rich.console import Console
from rich.table import Table

from export.onnx_export import LAYERS_NAME
from model.bundle import Bundle
from model.manifest import PREFERRED_PRECISIONS

NUM_SHOWN = 5  # layers, even if all are int8


def show_bundle(bundle: Bundle, console: Console) -> None:
    """Print what was written, and how near it is to PyTorch; warnings go to `console`."""
    manifest = bundle.manifest
    table = Table(title=f"{manifest.name} {manifest.version}", title_justify="left")
    for column in ("precision", "size", "largest difference", "mean difference", "same best token", "positions"):
        table.add_column(column, justify="right")
    for precision, variant in manifest.variants.items():
        size = sum(entry.bytes for name, entry in manifest.files.items() if name.startswith(f"{precision}/"))
        parity = variant.parity
        numbers = (f"{parity[key]:.2g}" for key in ("largest_difference", "mean_difference"))
        same = f"{parity['same_best_token']:.2%}"
        table.add_row(precision, f"{size / 1e6:.1f} MB", *numbers, same, str(parity["positions"]))
    Console().print(table)
    _show_layers(bundle)
    if aligned := manifest.alignment:
        heads = ", ".join(f"{layer}.{head}" for layer, head in aligned.heads)
        how = f"agreement {aligned.agreement:.3f} on {aligned.pairs} pairs" if aligned.pairs else "not measured"
        Console().print(f"alignment: layer.head {heads}{' (shifted)' if aligned.is_shifted else ''}, {how}")
    if not manifest.golden and manifest.variants.keys() & PREFERRED_PRECISIONS:
        how = "`python -m export.golden BUNDLE SENTENCES` adds them"
        warning = f"the bundle has no golden sentences for a server to try it with; {how}"
        console.print(f"[yellow]warning:[/yellow] {warning}", highlight=False, soft_wrap=True)


def _show_layers(bundle: Bundle) -> None:
    """Print the layers that lose most as int8, and all that keep float weights."""
    name = f"int8/{LAYERS_NAME}"
    if name not in bundle.manifest.files:
        return
    rows = [line.split("\t") for line in bundle.path(name).read_text(encoding="utf-8").splitlines()]
    rows.sort(key=lambda row: -float(row[1]))
    floats = sum(row[2] != "int8" for row in rows)
    table = Table("layer", "divergence", "weights", title_justify="left")
    table.title = f"{floats} of {len(rows)} layers keep float weights; all in {name} of the bundle"
    for row in rows[: max(floats, NUM_SHOWN)]:
        table.add_row(*row)
    Console().print(table)
