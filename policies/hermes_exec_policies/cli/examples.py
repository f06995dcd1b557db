"""Examples of the commands of the policies, which their help shows; without the program's name.

Tests parse each of them.
"""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "policy": ("policy list", "policy explain workspace"),
    "policy list": ("policy list", "policy list --json"),
    "policy show": ("policy show workspace", "policy show ./own.toml --json"),
    "policy explain": ("policy explain workspace", "policy explain workspace --in docker"),
    "policy diff": ("policy diff workspace skill-run", "policy diff workspace ./own.toml --json"),
    "policy render": ("policy render workspace", "policy render workspace --output ./rendered"),
    "policy check": ("policy check", "policy check ./own.toml"),
    "policy prove": (
        "policy prove bubblewrap --policy workspace",
        "policy prove docker:alpine --policy workspace",
    ),
}
