"""A mistake in certificates or keys is an error of one sentence, before any client is served."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from headwater.config.config import SETTINGS, Config
from headwater.config.loading import load
from headwater.errors import ConfigError
from headwater.server.services.tls import make_context
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Simple
from tests import certificates
from tests.certificates import Certificates


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return certificates.make(tmp_path)


def config(made: Certificates, **changed: str) -> Config:
    flags = made.settings(tls_port=1) | {
        name.replace("_", "-"): value for name, value in changed.items()
    }
    return load(flags=flags.items(), environ={})


def refusal(settings: Config) -> str:
    with pytest.raises(ConfigError) as caught:
        make_context(settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_certificate_and_its_key_are_accepted(made: Certificates) -> None:
    assert make_context(config(made)).cert_store_stats()["x509_ca"] == 1


def test_a_key_may_be_in_the_file_of_its_certificate(made: Certificates) -> None:
    both = Path(made.server).read_text() + Path(made.server_key).read_text()
    Path(made.server).write_text(both)
    make_context(config(made, tls_key_file=""))


def test_the_error_without_a_certificate_names_the_missing_settings(made: Certificates) -> None:
    assert refusal(config(made, tls_cert_file="")) == (
        "tls-port needs a certificate; give --tls-cert-file and --tls-key-file, both PEM"
    )


@pytest.mark.parametrize("name", ["tls-cert-file", "tls-key-file", "tls-ca-cert-file"])
def test_the_error_names_a_missing_file(made: Certificates, name: str) -> None:
    said = refusal(config(made, **{name: "/nowhere/file.pem"}))
    assert said.startswith(f"{name} '/nowhere/file.pem' cannot be read: No such file or directory;")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("tls-cert-file", "certificate"),
        ("tls-key-file", "private key"),
        ("tls-ca-cert-file", "certificate"),
    ],
)
def test_the_error_names_a_file_of_another_kind(
    made: Certificates, tmp_path: Path, name: str, what: str
) -> None:
    path = tmp_path / "other.pem"
    path.write_bytes(b"\0\xff other")
    assert refusal(config(made, **{name: str(path)})) == (
        f"{name} {str(path)!r} contains no {what} in PEM; give the file that does"
    )


@pytest.mark.parametrize("name", ["tls-cert-file", "tls-key-file", "tls-ca-cert-file"])
def test_a_damaged_file_is_refused(made: Certificates, name: str) -> None:
    settings = config(made)
    path = Path(settings.get(name))
    text = path.read_text()
    path.write_text(text[:60] + "!!" + text[62:])
    assert name in refusal(settings)


def test_a_key_of_another_certificate_is_refused(made: Certificates) -> None:
    said = refusal(config(made, tls_key_file=made.client_key))
    assert said == (
        f"tls-key-file {made.client_key!r} is not the key of the certificate in {made.server!r}; "
        "give the two that were created together"
    )


def test_an_encrypted_key_needs_its_password_without_a_prompt(made: Certificates) -> None:
    certificates.encrypt(Path(made.server_key), b"open sesame")
    assert "is encrypted; give its password as tls-key-file-pass" in refusal(config(made))
    said = refusal(config(made, tls_key_file_pass="wrong"))
    assert "cannot be read with tls-key-file-pass" in said
    assert "wrong" not in said
    make_context(config(made, tls_key_file_pass="open sesame"))


def test_the_password_of_a_key_is_not_shown(made: Certificates) -> None:
    settings = config(made, tls_key_file_pass="open sesame")
    assert settings.shown("tls-key-file-pass") == ""
    assert settings.shown("tls-key-file") == made.server_key
    assert "sesame" not in repr(settings)


@pytest.mark.parametrize("rule", ["yes", "optional"])
def test_clients_certificates_need_an_authority(made: Certificates, rule: str) -> None:
    said = refusal(config(made, tls_ca_cert_file="", tls_auth_clients=rule))
    assert said.startswith(f"tls-auth-clients {rule} needs the authority that signs clients'")
    make_context(config(made, tls_ca_cert_file="", tls_auth_clients="no"))


def test_authorities_may_be_in_a_directory(made: Certificates, tmp_path: Path) -> None:
    make_context(config(made, tls_ca_cert_file="", tls_ca_cert_dir=str(tmp_path)))
    said = refusal(config(made, tls_ca_cert_dir=made.server))
    assert said == f"tls-ca-cert-dir {made.server!r} is not a directory; correct the path"


def test_an_expired_authority_is_refused_if_there_is_no_other(
    made: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given an expired authority
    old = tmp_path / "old.pem"
    certificates.expire(old, authority=True)

    # Then it is refused as the only one
    said = refusal(config(made, tls_ca_cert_file=str(old)))
    assert said.startswith(
        f"every authority's certificate in tls-ca-cert-file {str(old)!r} has expired, the last"
    )

    # And together with a valid one it is reported
    old.write_text(old.read_text() + Path(made.authority).read_text())
    with caplog.at_level(logging.WARNING, "headwater.server"):
        make_context(config(made, tls_ca_cert_file=str(old)))
    assert "expired on" in caplog.text


def test_an_expired_server_certificate_is_used_and_reported(
    made: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "own.pem"
    certificates.expire(own, authority=False)
    with caplog.at_level(logging.WARNING, "headwater.server"):
        make_context(
            config(made, tls_cert_file=str(own), tls_key_file=str(own.with_suffix(".key")))
        )
    assert f"{str(own)!r} has expired: clients that verify it will not connect" in caplog.text


def test_a_good_certificate_is_not_reported(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.server"):
        make_context(config(made))
    assert caplog.text == ""


def test_versions_and_ciphers_are_the_configured_ones(made: Certificates) -> None:
    only = make_context(config(made, tls_protocols="tlsv1.3"))
    assert only.minimum_version.name == only.maximum_version.name == "TLSv1_3"
    both = make_context(config(made, tls_protocols="TLSv1.3 TLSv1.2"))
    assert (both.minimum_version.name, both.maximum_version.name) == ("TLSv1_2", "TLSv1_3")
    one = make_context(config(made, tls_ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"))
    names = [cipher["name"] for cipher in one.get_ciphers() if cipher["protocol"] == "TLSv1.2"]
    assert names == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    assert refusal(config(made, tls_ciphers="ROT13")).startswith("tls-ciphers 'ROT13' matches no ")


def test_an_insecure_version_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be one or both of TLSv1\.2 and TLSv1\.3"):
        load(flags=[("tls-protocols", "TLSv1.1 TLSv1.2")], environ={})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_the_error_names_an_unreadable_key(made: Certificates) -> None:
    Path(made.server_key).chmod(0)
    assert "cannot be read: Permission denied" in refusal(config(made))


# --- CONFIG SET -------------------------------------------------------------------------------------


@pytest.fixture(params=[0, 1], ids=["without a TLS port", "with one"])
def store(request: pytest.FixtureRequest, made: Certificates) -> LocalStore:
    flags = made.settings(tls_port=request.param)
    return LocalStore(journaled=False, config=load(flags=flags.items(), environ={}))


def settings_of(store: LocalStore) -> list[str]:
    return [store.node.services.config.get(name) for name in SETTINGS if name.startswith("tls-")]


@pytest.mark.parametrize(
    "name", ["tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-ca-cert-dir"]
)
def test_config_set_refuses_a_missing_file_and_changes_nothing(
    store: LocalStore, name: str
) -> None:
    before, context = settings_of(store), store.node.services.clients.tls
    answer = store.client()("CONFIG", "SET", "appendfsync", "no", name, "/nowhere/file.pem")
    assert isinstance(answer, Failure)
    said = answer.text.decode()
    assert said.startswith(
        f"ERR CONFIG SET failed (possibly related to argument '{name}') - {name} '/nowhere/file.pem' "
    )
    assert settings_of(store) == before
    assert store.node.services.config.appendfsync == "everysec"
    assert store.node.services.clients.tls is context


def test_config_set_refuses_a_file_of_the_wrong_kind(store: LocalStore, made: Certificates) -> None:
    before = settings_of(store)
    for name, path in (
        ("tls-cert-file", made.server_key),
        ("tls-key-file", made.authority),
        ("tls-ca-cert-file", made.server_key),
    ):
        assert isinstance(store.client()("CONFIG", "SET", name, path), Failure)
    assert settings_of(store) == before


def test_config_set_accepts_a_new_certificate_and_key_only_together(
    store: LocalStore, made: Certificates
) -> None:
    client, before = store.client(), settings_of(store)
    # A key or a certificate that does not match the other is refused
    for name, path in (("tls-key-file", made.client_key), ("tls-cert-file", made.client)):
        answer = client("CONFIG", "SET", name, path)
        assert isinstance(answer, Failure)
        assert b"is not the key of the certificate" in answer.text
    assert settings_of(store) == before
    # And both together are accepted, in any order
    both = ("tls-key-file", made.client_key, "tls-cert-file", made.client)
    assert client("CONFIG", "SET", *both) == Simple(b"OK")
    assert made.client in settings_of(store)


def test_a_failing_disk_in_the_same_command_leaves_the_context_unchanged(
    made: Certificates,
) -> None:
    # Given a server with TLS, and a disk whose next fsync fails
    flags = made.settings(tls_port=1)
    store = LocalStore(config=load(flags=flags.items(), environ={}))
    client, in_force = store.client(), make_context(store.node.services.config)
    store.node.services.clients.tls = in_force
    assert client("CONFIG", "SET", "appendfsync", "no") == Simple(b"OK")
    for _ in range(2):  # the first still needs its fsync
        client("SET", "k", "v")
    assert store.files is not None
    store.files.fail("sync")
    # When certificates and appendfsync are changed in one command
    both = ("tls-cert-file", made.server, "appendfsync", "always")
    answer = client("CONFIG", "SET", *both)
    # Then it fails, and neither changes
    assert isinstance(answer, Failure)
    assert b"appendfsync" in answer.text
    assert store.node.services.clients.tls is in_force


def test_config_set_accepts_single_files_while_tls_is_not_used(made: Certificates) -> None:
    client = LocalStore(journaled=False).client()
    for name, path in (
        ("tls-cert-file", made.server),
        ("tls-key-file", made.server_key),
        ("tls-ca-cert-file", made.authority),
        ("tls-cert-file", ""),
        ("tls-key-file", ""),
    ):
        assert client("CONFIG", "SET", name, path) == Simple(b"OK"), name
