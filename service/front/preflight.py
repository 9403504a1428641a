"""What is wrong with the settings, as far as files tell: those that are missing, or are not what they should be.

For `--check-config`.  Starts no engine and binds no port; opens each bundle that would be tried first.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path

from service.config import LifecycleConfig, SecurityConfig, ServerConfig
from service.front.model_hosting import BundleChecker, model_source


def check(config: ServerConfig) -> list[str]:
    """What is wrong, one line each; empty when the server could start."""
    problems = [*_models(config), *_tls(config.security), *_other_files(config.security, config.lifecycle)]
    return [" ".join(problem.split()) for problem in problems]


def _models(config: ServerConfig) -> Iterator[str]:
    """Of each name the version that would be tried first; one that is refused need not stop the others."""
    try:
        checker = BundleChecker(config)
        candidates = model_source(config).scan()
    except ValueError as error:
        yield str(error)
        return
    for found in candidates.values():
        try:
            checker(found[0])
        except (ValueError, OSError) as error:
            yield str(error)


def _tls(security: SecurityConfig) -> Iterator[str]:
    certificate, key = security.tls_certificate, security.tls_key
    if (certificate is None) != (key is None):
        given, missing = ("tls_certificate", "tls_key") if key is None else ("tls_key", "tls_certificate")
        yield f"security.{given} is set without security.{missing}; give both or none"
        return
    if certificate is None or key is None:
        if security.tls_client_ca is not None:
            yield "security.tls_client_ca is set without security.tls_certificate and security.tls_key"
        return
    missing_files = [*_missing("tls_certificate", certificate), *_missing("tls_key", key)]
    yield from missing_files or _unusable_pair(certificate, key)
    if security.tls_client_ca is not None:
        yield from list(_missing("tls_client_ca", security.tls_client_ca)) or _unusable_ca(security.tls_client_ca)


def _unusable_pair(certificate: Path, key: Path) -> Iterator[str]:
    try:
        # An empty password, so that an encrypted key is an error and not a question.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        yield f"security.tls_certificate {certificate} and security.tls_key {key} cannot be used together: {error}"


def _unusable_ca(file: Path) -> Iterator[str]:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
    except ssl.SSLError as error:
        yield f"security.tls_client_ca {file} has no certificates in PEM: {error}"


def _other_files(security: SecurityConfig, lifecycle: LifecycleConfig) -> Iterator[str]:
    if security.api_keys is not None:
        yield from _missing("api_keys", security.api_keys)
    if lifecycle.ports_file is not None and not lifecycle.ports_file.absolute().parent.is_dir():
        yield f"lifecycle.ports_file {lifecycle.ports_file} is in a directory that does not exist"


def _missing(name: str, file: Path) -> Iterator[str]:
    try:
        with file.open("rb"):
            return
    except OSError as error:
        yield f"security.{name} {file} cannot be read: {error.strerror}"
