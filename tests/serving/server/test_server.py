"""What a server needs before it opens its ports."""

import subprocess
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.serving.server.server import Certificate


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_pass_phrase(
    certificate: tuple[str, str], tmp_path: Path
) -> None:
    chain, key = certificate
    encrypted = tmp_path / "key.pem"
    command = ["openssl", "pkey", "-in", key, "-out", str(encrypted), "-aes128", "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(ConfigError, match=f"--tls_key {encrypted} is encrypted; write one that is not"):
        Certificate(Path(chain), encrypted).context()
