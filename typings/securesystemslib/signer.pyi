from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

class SSlibKey:
    @classmethod
    def from_crypto(cls, public_key: Ed25519PublicKey) -> SSlibKey: ...

class CryptoSigner:
    def __init__(self, private_key: Ed25519PrivateKey) -> None: ...
