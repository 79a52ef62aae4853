"""The command line: ``m3nb demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from m3nb._version import __version__
from m3nb.errors import MCPError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (2: it could not be done, and the reason was printed)."""
    options = _parser().parse_args(arguments)
    try:
        from m3nb.notebook import demo

        if options.execute:
            return demo.execute(options.folder)
        return demo.open_lab(options.folder or Path("m3nb-demo"), options.jupyter)
    except MCPError as error:
        print(f"m3nb: {error.message}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="m3nb", description="Answer what MCP servers ask, in a notebook.")
    parser.add_argument("--version", action="version", version=f"m3nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="open the quickstart in JupyterLab",
        description="Copies the quickstart and its small MCP server into a folder, and opens JupyterLab there.",
    )
    demo.add_argument("--folder", type=Path, help="where to put it (./m3nb-demo; with --execute a temporary folder)")
    demo.add_argument("--execute", action="store_true", help="run it without a browser; a second process answers")
    demo.add_argument("jupyter", nargs="*", metavar="-- OPTION", help="passed on, e.g. -- --no-browser --port 8900")
    return parser


if __name__ == "__main__":
    sys.exit(main())
