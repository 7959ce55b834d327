"""Encrypted values belong to their places, and a missing key is told from a changed value."""

import pytest

from durable_agent_host.encryption.cipher import Cipher, EncryptionKey
from durable_agent_host.errors import CorruptStateError, EncryptionKeyError

OLD, NEW = EncryptionKey("old", bytes(32)), EncryptionKey("new", bytes(range(32)))
ASSOCIATED_DATA = ("blob", "namespace", "name")


@pytest.mark.parametrize(
    "associated_data", [("blob", "namespace", "other"), ("blob", "other", "name"), ("log", "namespace", "name")]
)
def test_ciphertext_is_bound_to_its_associated_data(associated_data: tuple[str, ...]):
    """At another place, or with any bit changed, it is refused; at its own, the same text gives the same bytes."""
    cipher = Cipher([OLD])
    data = cipher.encrypt(ASSOCIATED_DATA, b"text")
    assert (cipher.encrypt(ASSOCIATED_DATA, b"text"), cipher.decrypt(ASSOCIATED_DATA, data)) == (data, b"text")
    with pytest.raises(CorruptStateError, match="moved"):
        cipher.decrypt(associated_data, data)
    for at in range(4, len(data)):
        with pytest.raises(CorruptStateError):
            cipher.decrypt(ASSOCIATED_DATA, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert cipher.encrypt(associated_data, b"text")[4:] != data[4:]


def test_the_first_key_encrypts_and_all_decrypt():
    """What an earlier key has encrypted is read as long as the key is there; without it, a key is missing."""
    data = Cipher([OLD]).encrypt(ASSOCIATED_DATA, b"text")
    both = Cipher([NEW, OLD])
    assert both.decrypt(ASSOCIATED_DATA, data) == b"text"
    assert Cipher([NEW]).decrypt(ASSOCIATED_DATA, both.encrypt(ASSOCIATED_DATA, b"text")) == b"text"
    with pytest.raises(EncryptionKeyError, match="'new'"):
        Cipher([NEW]).decrypt(ASSOCIATED_DATA, data)


@pytest.mark.parametrize("left", [0, 1, 4, 16, 31])
def test_what_was_cut_short_is_damaged(left: int):
    """Too short for a prefix, a nonce and a tag: it was changed, and no key is missing."""
    cipher = Cipher([OLD])
    with pytest.raises(CorruptStateError, match="changed"):
        cipher.decrypt(ASSOCIATED_DATA, cipher.encrypt(ASSOCIATED_DATA, b"text")[:left])
