"""A single certificate authority in place of those of the system, which cost a client 20 ms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trustme

__all__ = ["one_authority"]


@pytest.fixture(scope="module", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let clients that are made with the default settings trust one authority only.

    The SDKs of OpenAI and Anthropic read all authorities for each client, also for plain HTTP, and
    most of the time of a test went into that. A `conftest.py` that imports this applies it.
    """
    file = tmp_path_factory.mktemp("tls") / "authority.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield
