"""`yard-runner`: the command line.

Owns: its subcommands, the checks before it serves.
Leaves: answering to service.py.
Always: it serves only as root, and only code that nobody but root can change.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import torchyard
from torchyard.runner import accounts, cgroups, scratch, service
from torchyard.runner import config as configuration
from torchyard.runner.config import Config, Refused
from torchyard.shared import runner_messages as messages


def main() -> int:
    """Exit code: 0, or 2 for an error."""
    parser = argparse.ArgumentParser(
        "yard-runner", description="Start jobs as the Unix accounts of their people."
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=configuration.FILE,
        metavar="FILE",
        help=f"default: {configuration.FILE}",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serving = commands.add_parser("serve", help="answer the server; the default")
    serving.add_argument(
        "--socket",
        type=Path,
        default=None,
        help=f"where to listen, unless systemd does; default: {messages.SOCKET}",
    )
    serving.add_argument("--allow-writable-code", action="store_true", help=argparse.SUPPRESS)
    commands.add_parser("check", help="check the configuration and every account")
    mapping = commands.add_parser("map", help="map a person to a Unix account")
    mapping.add_argument("person", metavar="NAME")
    mapping.add_argument("account", metavar="ACCOUNT")
    commands.add_parser("accounts", help="list who has which account")
    arguments = parser.parse_args()
    try:
        if os.geteuid() != 0:
            raise Refused("not_root", "yard-runner is not root", "start it by its systemd unit")
        if arguments.command == "map":
            return _map(arguments.config, arguments.person, arguments.account)
        config = configuration.read(arguments.config)
        if arguments.command == "check":
            return _check(config)
        if arguments.command == "accounts":
            return _list(config)
        if not getattr(arguments, "allow_writable_code", False):
            _check_code()
        scratch.prepare(config)
        socket = getattr(arguments, "socket", None)
        service.serve(config, service.listening_socket(config, socket))
    except Refused as refusal:
        print(f"error: {refusal.message}", file=sys.stderr)
        if refusal.hint:
            print(f"hint: {refusal.hint}", file=sys.stderr)
        return 2


def _check_code() -> None:
    package = Path(torchyard.__file__).parent
    for file in (
        Path(sys.executable),
        package,
        *package.glob("*.py"),
        *package.glob("runner/*.py"),
        *package.glob("shared/**/*.py"),
    ):
        configuration.check_only_root_writes(file)


def _map(file: Path, person: str, account: str) -> int:
    config = configuration.read(file)
    accounts_by_person = accounts.remembered(config)
    others = {
        name for name, of in {**accounts_by_person, **config.accounts}.items() if of == account
    }
    if others - {person}:
        raise Refused(
            "taken",
            f"`{account}` is the account of `{', '.join(sorted(others - {person}))}`",
            "give each person an account of their own",
        )
    body = json.loads(file.read_text())
    body.setdefault("accounts", {})[person] = account
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(json.dumps(body, indent=2) + "\n")
    os.chmod(draft, 0o644)
    accounts.get_by_name(configuration.read(draft), account)
    draft.replace(file)
    print(f"jobs of `{person}` run as `{account}` once the runner is restarted")
    return 0


def _check(config: Config) -> int:
    scratch.prepare(config)
    _check_code()
    problems = 0
    for name in dict.fromkeys(
        [*config.accounts.values(), *config.pool, *config.build_users, config.engine_user]
    ):
        if not name:
            continue
        try:
            accounts.get_by_name(config, name)
        except Refused as refusal:
            problems += 1
            print(f"error: {refusal.message}\nhint: {refusal.hint}")
    account_counts = (
        f"{len(config.accounts)} mapped people, {len(config.pool)} accounts in the pool"
    )
    print(f"{account_counts}; server: `{config.server_user}`; node folder: `{config.node_folder}`")
    if cgroups.own() is None:
        print("warning: no cgroup can be made here, so jobs' limits do not hold")
    return 2 if problems else 0


def _list(config: Config) -> int:
    for person, account in sorted({**accounts.remembered(config), **config.accounts}.items()):
        print(f"{person}\t{account}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
