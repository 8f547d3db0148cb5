"""The machine's own conda configuration: the URLs of channels.

Owns: condarc files and CONDA_* variables; from a channel's name to its URLs.
Leaves: getting packages from there to conda/resolver.py.
Always: what is read here stays in memory: no spec, lock or log holds it. Job files name channels,
and the machine's configuration says what the names mean.

Sources: https://docs.conda.io/projects/conda/en/stable/user-guide/configuration/ (files, their
order, channel_alias, custom_channels, custom_multichannels, default_channels),
https://mamba.readthedocs.io/en/latest/user_guide/configuration.html (mirrored_channels).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

_ALIAS = "https://conda.anaconda.org"
_DEFAULTS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
_SCHEMES = ("http://", "https://", "file://", "s3://", "gcs://", "oci://")
_LISTS = ("channels", "default_channels")
_MAPS = ("custom_channels", "custom_multichannels", "mirrored_channels", "proxy_servers")


@dataclass(frozen=True)
class CondaConfig:
    """The machine's configuration; `channels` are for files that name none."""

    alias: str = _ALIAS
    channels: tuple[str, ...] = ()
    default_channels: tuple[str, ...] = _DEFAULTS
    custom: Mapping[str, str] = field(default_factory=dict)
    multi: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def urls_of(self, channel: str) -> list[list[str]]:
        """The URLs of a channel: for each of its parts its mirrors, best first."""
        parts = self.multi.get(channel)
        if parts is None and channel == "defaults":
            parts = self.default_channels
        return [self._mirrors(part) for part in parts] if parts else [self._mirrors(channel)]

    def private(self) -> Iterable[str]:
        """URLs of the machine's own configuration, which are not shown to users."""
        urls = [self.alias, *self.channels, *self.default_channels, *self.custom.values()]
        for several in (*self.multi.values(), *self.mirrors.values()):
            urls += several
        defaults = (_ALIAS, *_DEFAULTS)
        return (url for url in urls if url.startswith(_SCHEMES) and url.rstrip("/") not in defaults)

    def _mirrors(self, channel: str) -> list[str]:
        url = self._url(channel)
        for name in (channel, url):
            if name in self.mirrors:
                return [mirror.rstrip("/") for mirror in self.mirrors[name]]
        return [url]

    def _url(self, channel: str) -> str:
        if channel.startswith(_SCHEMES):
            return channel.rstrip("/")
        words = channel.split("/")
        for length in range(len(words), 0, -1):
            name = "/".join(words[:length])
            if name in self.custom:
                # As in conda, the URL is that of the channel's parent.
                return "/".join((self.custom[name].rstrip("/"), *words))
        return f"{self.alias.rstrip('/')}/{channel}"


def read(environ: Mapping[str, str], home: Path) -> CondaConfig:
    """The configuration that conda would read; unreadable files are ignored."""
    settings: dict[str, Any] = {}
    for file in _files(environ, home):
        _merge(settings, _document(file, environ))
    for name in ("channel_alias", "ssl_verify"):
        if environ.get(f"CONDA_{name.upper()}"):
            settings[name] = environ[f"CONDA_{name.upper()}"]
    for name in _LISTS:
        if environ.get(f"CONDA_{name.upper()}"):
            settings[name] = environ[f"CONDA_{name.upper()}"].split(",")
    return CondaConfig(
        alias=str(settings.get("channel_alias") or _ALIAS),
        channels=_texts(settings.get("channels")),
        default_channels=_texts(settings.get("default_channels")) or _DEFAULTS,
        custom={key: str(value) for key, value in settings.get("custom_channels", {}).items()},
        multi={key: _texts(of) for key, of in settings.get("custom_multichannels", {}).items()},
        mirrors={key: _texts(of) for key, of in settings.get("mirrored_channels", {}).items()},
        variables=_variables(settings),
    )


def _variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Variables of proxies and certificates for the program that downloads."""
    variables = {}
    for scheme in ("http", "https"):
        if settings.get("proxy_servers", {}).get(scheme):
            variables[f"{scheme.upper()}_PROXY"] = str(settings["proxy_servers"][scheme])
    verify = str(settings.get("ssl_verify", ""))
    if verify.startswith("/"):
        variables["SSL_CERT_FILE"] = verify
    elif verify.lower() in ("false", "0", "no"):
        variables["TORCHYARD_CONDA_NO_VERIFY"] = "1"
    return variables


def _merge(settings: dict[str, Any], later: Mapping[str, Any]) -> None:
    for key, value in later.items():
        if key in _LISTS:
            settings[key] = list(dict.fromkeys((*_texts(value), *_texts(settings.get(key)))))
        elif key in _MAPS:
            if isinstance(value, Mapping):
                settings[key] = {**settings.get(key, {}), **value}
        elif key in ("channel_alias", "ssl_verify"):
            settings[key] = value


def _document(file: Path, environ: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    import yaml

    try:
        document = yaml.safe_load(Template(text).safe_substitute(environ))
    except yaml.YAMLError:
        return {}
    return document if isinstance(document, Mapping) else {}


def _texts(value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(str(item).strip() for item in values if item)


def _files(environ: Mapping[str, str], home: Path) -> list[Path]:
    """The files that conda reads; later ones win."""
    user_folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "conda"
    files = [
        folder / name
        for folder in (Path("/etc/conda"), user_folder, home / ".conda")
        for name in ("condarc", ".condarc")
    ]
    files += [home / ".mambarc", home / ".condarc"]
    files += [Path(environ[name]) for name in ("MAMBARC", "CONDARC") if environ.get(name)]
    return files
