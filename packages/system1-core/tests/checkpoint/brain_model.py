"""The model that the loopback hub publishes in these tests."""

REPO = "acme/brain"
REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"# Brain\n",
    "config.json": b'{"layers": 2}',
    "model.safetensors": bytes(range(256)) * 2000,
    "tokenizer/tokenizer.json": b'{"model": {}}',
    "small/config.json": b'{"layers": 1}',
    "small/model.safetensors": bytes(reversed(range(256))) * 20,
}
