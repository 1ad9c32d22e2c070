"""Creates certificates for tests, valid for this machine only.

made = certificates.make(directory)
server_process(*made.flags(tls_port=free_port()))
redis.Redis.from_url(server.tls_url, **made.client_options)
"""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass
class Certificates:
    """The paths of the files. One authority signed the server and one client; another authority signed
    a stranger."""

    directory: Path

    @property
    def authority(self) -> str:
        return str(self.directory / "authority.pem")

    @property
    def server(self) -> str:
        return str(self.directory / "server.pem")

    @property
    def server_key(self) -> str:
        return str(self.directory / "server.key")

    @property
    def client(self) -> str:
        return str(self.directory / "client.pem")

    @property
    def client_key(self) -> str:
        return str(self.directory / "client.key")

    @property
    def client_options(self) -> dict[str, str]:
        """TLS options of redis-py and similar clients."""
        return {
            "ssl_ca_certs": self.authority,
            "ssl_certfile": self.client,
            "ssl_keyfile": self.client_key,
        }

    def settings(self, *, tls_port: int, auth_clients: str = "yes") -> dict[str, str]:
        """The server's settings."""
        return {
            "tls-port": str(tls_port),
            "tls-cert-file": self.server,
            "tls-key-file": self.server_key,
            "tls-ca-cert-file": self.authority,
            "tls-auth-clients": auth_clients,
        }

    def flags(self, *, tls_port: int, auth_clients: str = "yes") -> list[str]:
        """The same as command-line flags, which Redis's servers accept too."""
        found = self.settings(tls_port=tls_port, auth_clients=auth_clients)
        return [word for name, value in found.items() for word in (f"--{name}", value)]

    def context(self, who: str | None = "client") -> ssl.SSLContext:
        """Return a client's context with the certificate of ``client`` or ``stranger``, or with none."""
        context = ssl.create_default_context(cafile=self.authority)
        if who is not None:
            context.load_cert_chain(self.directory / f"{who}.pem", self.directory / f"{who}.key")
        return context

    def renew(self) -> None:
        """Replace the server's certificate by another one of the same authority, in the same files."""
        authority = trustme.CA.from_pem(
            (self.directory / "authority.pem").read_bytes(),
            (self.directory / "authority.key").read_bytes(),
        )
        _write(authority.issue_cert(*NAMES), self.directory / "server")


def make(directory: Path) -> Certificates:
    """Create all certificates in ``directory``."""
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    authority.private_key_pem.write_to_path(directory / "authority.key")
    _write(authority.issue_cert(*NAMES), directory / "server")
    _write(authority.issue_cert("client@example.org"), directory / "client")
    _write(other.issue_cert("stranger@example.org"), directory / "stranger")
    return Certificates(directory)


def expire(path: Path, *, authority: bool) -> None:
    """Write an expired self-signed certificate to ``path`` and its key next to it, as ``.key``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "yesterday")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(now - dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    """Return the key as PEM, encrypted if there is a password."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def encrypt(key: Path, password: bytes) -> None:
    """Encrypt the key in a file with a password."""
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(plain, ec.EllipticCurvePrivateKey)
    key.write_bytes(private_pem(plain, password))


def _write(issued: trustme.LeafCert, stem: Path) -> None:
    issued.private_key_pem.write_to_path(stem.with_suffix(".key"))
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(stem.with_suffix(".pem"), append=number > 0)
