"""Settings of TLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.config.kinds import FilePath, Integer, Words
from headwater.config.setting import ONLY_AT_START, setting

TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""The supported versions of TLS."""


class Protocols(Words):
    """Versions of TLS, oldest first. As in Redis, an empty text means all supported versions."""

    def parse(self, text: str) -> tuple[str, ...]:
        wanted = {word.lower() for word in text.split()}
        known = {name.lower(): name for name in TLS_PROTOCOLS}
        if not wanted <= known.keys():
            raise ValueError(
                f"argument must be one or both of {' and '.join(TLS_PROTOCOLS)}; older versions are not secure"
            )
        return tuple(name for low, name in known.items() if low in wanted) or TLS_PROTOCOLS


@dataclass(kw_only=True)
class TlsConfig:
    """Settings of the TLS listener: certificates, versions, ciphers."""

    tls_port: int = setting(
        0, "TCP port for TLS; 0: none.", kind=Integer(0, 65535), fixed_after_start=ONLY_AT_START
    )
    tls_cert_file: str = setting(
        "", "File with the server's certificate and the intermediate ones, in PEM.", kind=FilePath()
    )
    tls_key_file: str = setting(
        "", "File with the private key, in PEM; empty: in tls-cert-file.", kind=FilePath()
    )
    tls_key_file_pass: str = setting(
        "", "Password of the private key; CONFIG GET does not show it.", secret=True, hidden=True
    )
    tls_ca_cert_file: str = setting(
        "", "File with the authorities that sign clients' certificates, in PEM.", kind=FilePath()
    )
    tls_ca_cert_dir: str = setting(
        "",
        "Directory with the authorities that sign clients' certificates, prepared by `openssl rehash`.",
        kind=FilePath(),
    )
    tls_auth_clients: Literal["no", "yes", "optional"] = setting(
        "yes", "Clients must (yes), may (optional) or need not (no) present a certificate."
    )
    tls_protocols: tuple[str, ...] = setting(
        TLS_PROTOCOLS, "Versions of TLS to accept.", kind=Protocols()
    )
    tls_ciphers: str = setting(
        "", "Ciphers of TLSv1.2, by their OpenSSL names; empty: Python's default."
    )
    tls_prefer_server_ciphers: bool = setting(
        False, "Prefer the server's order of ciphers to the client's."
    )
