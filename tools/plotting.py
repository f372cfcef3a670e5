"""What do the scripts that draw pictures share: a backend without a screen, one way to fail, units, files without a date?"""
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402,F401  (the backend comes first)

INK = "#1b2733"
BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def fail(message):
    print(f"{pathlib.Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
    sys.exit(2)


def scaled(value, units=BYTES, step=1024):
    """Three significant digits and a unit: 512 B, 1.5 MiB, 6.54 GiB."""
    units = list(units)
    while abs(value) >= step and len(units) > 1:
        value /= step
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def save(figure, paths, dpi=150):
    """The same figures give the same files."""
    matplotlib.rcParams["svg.hashsalt"] = "tidemark"
    for path in paths:
        try:
            figure.savefig(path, dpi=dpi, metadata={"Date": None} if path.endswith((".svg", ".pdf")) else None)
        except (OSError, ValueError) as error:
            fail(f"{path}: {error}")
