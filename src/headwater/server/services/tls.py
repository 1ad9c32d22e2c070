"""Creates the TLS context, after reading and checking certificate, key and authorities.

The context is created at the start, and after CONFIG SET of any TLS setting, so that a renewed certificate needs
no restart. Every problem is one error message, raised before the context is used.

Sources: redis.conf (TLS/SSL),
https://redis.io/docs/latest/operate/oss_and_stack/management/security/encryption/
"""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path

from headwater.config.tls import TlsConfig
from headwater.errors import ConfigError

log = logging.getLogger("headwater.server")

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_VERIFY = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "yes": ssl.CERT_REQUIRED}

_CERTIFICATE, _KEY = "-----BEGIN CERTIFICATE-----", "PRIVATE KEY-----"

_DATE_ERRORS = {9: "is not valid yet", 10: "has expired"}
"""OpenSSL's codes for certificates outside their period of validity (X509_V_ERR_CERT_…)."""


def make_context(config: TlsConfig) -> ssl.SSLContext:
    """Create the context that the ``tls-…`` settings describe.

    Raises `ConfigError`, whose message names the setting, the file, the problem and the remedy.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = sorted(VERSIONS[name] for name in config.tls_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    # A client could repeat handshakes, which cost the server more than the client.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if config.tls_prefer_server_ciphers:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if config.tls_ciphers:
        _set_ciphers(context, config)
    _load_own_certificate(context, config)
    _load_authorities(context, config)
    context.verify_mode = _VERIFY[config.tls_auth_clients]
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """Create the context with which a replica connects to its primary (``tls-replication``). It shows the certificate of
    this server, and accepts a primary whose certificate the authorities have signed, whatever its name, as Redis does.

    Raises `ConfigError`, like `make_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = sorted(VERSIONS[name] for name in config.tls_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.check_hostname = False
    if not config.tls_ca_cert_file and not config.tls_ca_cert_dir:
        raise ConfigError(
            "tls-replication needs the authority that signs the primary's certificate; give tls-ca-cert-file or "
            "tls-ca-cert-dir"
        )
    if config.tls_cert_file:
        _load_own_certificate(context, config)
    _load_authorities(context, config)
    return context


def _set_ciphers(context: ssl.SSLContext, config: TlsConfig) -> None:
    try:
        context.set_ciphers(config.tls_ciphers)
    except ssl.SSLError:
        raise ConfigError(
            f"tls-ciphers {config.tls_ciphers!r} matches no cipher of OpenSSL; give OpenSSL's names, "
            "separated by colons (`openssl ciphers` lists them), or leave it empty"
        ) from None


def check_files(config: TlsConfig) -> None:
    """Check the files of the ``tls-…`` settings of a server without a TLS listener. Settings may still be
    empty, but the files that are given must be usable.

    Raises `ConfigError`, like `make_context`.
    """
    certificate, key = config.tls_cert_file, config.tls_key_file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate and (key or _contains(certificate, _KEY)):
        _load_own_certificate(context, config)
    elif certificate:
        _check_content("tls-cert-file", certificate, _CERTIFICATE, "certificate")
    elif key:
        _check_content("tls-key-file", key, _KEY, "private key")
    if config.tls_ciphers:
        _set_ciphers(context, config)
    if config.tls_ca_cert_file or config.tls_ca_cert_dir:
        _load_authorities(context, config)


# --- the server's certificate -----------------------------------------------------------------------


def _load_own_certificate(context: ssl.SSLContext, config: TlsConfig) -> None:
    certificate, key = config.tls_cert_file, config.tls_key_file or config.tls_cert_file
    if not certificate:
        raise ConfigError(
            "tls-port needs a certificate; give --tls-cert-file and --tls-key-file, both PEM"
        )
    _check_content("tls-cert-file", certificate, _CERTIFICATE, "certificate")
    _check_content("tls-key-file", key, _KEY, "private key")

    def password() -> str:
        if not config.tls_key_file_pass:
            raise ConfigError(
                f"tls-key-file {key!r} is encrypted; give its password as tls-key-file-pass, "
                "preferably in the environment (HEADWATER_TLS_KEY_FILE_PASS)"
            )
        return config.tls_key_file_pass

    try:
        context.load_cert_chain(certificate, key, password)
    except (ssl.SSLError, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
        if reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"tls-key-file {key!r} is not the key of the certificate in {certificate!r}; give "
                "the two that were created together"
            ) from None
        if config.tls_key_file_pass:
            raise ConfigError(
                f"tls-key-file {key!r} cannot be read with tls-key-file-pass ({reason}); correct "
                "the password or the file"
            ) from None
        raise ConfigError(
            f"tls-cert-file {certificate!r} and tls-key-file {key!r} cannot be used ({reason}); "
            "create them again as PEM, the key with at least 2,048 bits of RSA or 256 of ECDSA"
        ) from None
    _warn_of_dates(context, certificate)


def _warn_of_dates(context: ssl.SSLContext, certificate: str) -> None:
    """Warn if the certificate is not valid now. The certificate is used nevertheless, because not every client
    checks the date.

    The date is checked as clients do: by a handshake, in memory, with a client that accepts this
    certificate as its authority.
    """
    looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looking.check_hostname = False
    looking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    looking.load_verify_locations(certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = looking.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in _DATE_ERRORS:
                log.warning(
                    "the certificate in tls-cert-file %r %s: clients that verify it will not "
                    "connect; renew it, then CONFIG SET tls-cert-file reads it without a restart",
                    certificate,
                    _DATE_ERRORS[error.verify_code],
                )
            return
        except ssl.SSLError:
            return  # For example, the ciphers need another kind of key: clients get the error.


# --- the authorities of clients' certificates -------------------------------------------------------


def _load_authorities(context: ssl.SSLContext, config: TlsConfig) -> None:
    file, directory = config.tls_ca_cert_file, config.tls_ca_cert_dir
    if not file and not directory:
        if config.tls_auth_clients == "no":
            return
        raise ConfigError(
            f"tls-auth-clients {config.tls_auth_clients} needs the authority that signs clients' "
            "certificates; give --tls-ca-cert-file or --tls-ca-cert-dir, or --tls-auth-clients no"
        )
    if directory and not Path(directory).is_dir():
        raise ConfigError(f"tls-ca-cert-dir {directory!r} is not a directory; correct the path")
    if directory:
        context.load_verify_locations(capath=directory)
    if not file:
        return
    _check_content("tls-ca-cert-file", file, _CERTIFICATE, "certificate")
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError as error:
        raise ConfigError(
            f"tls-ca-cert-file {file!r} cannot be read ({error.reason}); create it again as PEM"
        ) from None
    if config.tls_auth_clients != "no":
        _check_expiry(context, file)


def _check_expiry(context: ssl.SSLContext, file: str) -> None:
    """Raise `ConfigError` if every authority has expired: no client's certificate could be valid."""
    now = time.time()
    found = context.get_ca_certs()
    expired = [one for one in found if ssl.cert_time_to_seconds(str(one["notAfter"])) < now]
    if expired and len(expired) == len(found):
        raise ConfigError(
            f"every authority's certificate in tls-ca-cert-file {file!r} has expired, the last one on "
            f"{max((str(one['notAfter']) for one in expired), key=ssl.cert_time_to_seconds)}, so "
            "no client's certificate can be valid; put renewed certificates into the file"
        )
    for one in expired:
        log.warning("an authority in tls-ca-cert-file %r expired on %s", file, one["notAfter"])


def _contains(path: str, mark: str) -> bool:
    try:
        return mark in Path(path).read_text("latin-1")
    except OSError:
        return False


def _check_content(setting: str, path: str, mark: str, what: str) -> None:
    """Raise `ConfigError` for a file that cannot be read or does not contain ``what``."""
    try:
        text = Path(path).read_text("latin-1")
    except OSError as error:
        raise ConfigError(
            f"{setting} {path!r} cannot be read: {error.strerror}; correct the path or its "
            "permissions"
        ) from None
    if mark not in text:
        raise ConfigError(f"{setting} {path!r} contains no {what} in PEM; give the file that does")
