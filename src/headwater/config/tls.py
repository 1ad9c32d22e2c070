"""Settings of TLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.config.kinds import FilePath, Integer, Words
from headwater.config.setting import ONLY_AT_START, setting

TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""The supported versions of TLS."""


class Protocols(Words):
    """Versions of TLS, oldest first; an empty text means both, as in Redis."""

    def parse(self, text: str) -> tuple[str, ...]:
        wanted = {word.lower() for word in text.split()}
        known = {name.lower(): name for name in TLS_PROTOCOLS}
        if not wanted <= known.keys():
            raise ValueError(
                f"argument must be of {' and '.join(TLS_PROTOCOLS)}; older versions are not secure"
            )
        return tuple(name for low, name in known.items() if low in wanted) or TLS_PROTOCOLS


@dataclass(kw_only=True)
class TlsConfig:
    """The TLS listener: certificates, versions, ciphers."""

    tls_port: int = setting(
        0, "TCP port for TLS; 0: none.", kind=Integer(0, 65535), fixed_after_start=ONLY_AT_START
    )
    tls_cert_file: str = setting(
        "", "The server's certificate and the intermediate certificates, PEM.", kind=FilePath()
    )
    tls_key_file: str = setting(
        "", "The private key, PEM; empty: in tls-cert-file.", kind=FilePath()
    )
    tls_key_file_pass: str = setting(
        "", "Password of the private key; CONFIG GET does not show it.", secret=True, hidden=True
    )
    tls_ca_cert_file: str = setting(
        "", "Authorities that sign clients' certificates, PEM.", kind=FilePath()
    )
    tls_ca_cert_dir: str = setting(
        "", "The same, as a directory prepared by `openssl rehash`.", kind=FilePath()
    )
    tls_auth_clients: Literal["no", "yes", "optional"] = setting(
        "yes", "Whether clients must (yes) or may (optional) present a certificate."
    )
    tls_protocols: tuple[str, ...] = setting(
        TLS_PROTOCOLS, "Versions of TLS to accept.", kind=Protocols()
    )
    tls_ciphers: str = setting(
        "", "Ciphers of TLSv1.2, by their OpenSSL names; empty: Python's default."
    )
    tls_prefer_server_ciphers: bool = setting(
        False, "Whether the server's order of ciphers takes precedence over the client's."
    )
