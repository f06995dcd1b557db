"""The command group of the policies."""

from hermes_exec.cli.commands import Command

COMMANDS = (
    Command(
        "policy",
        "hermes_exec_policies.cli.policy",
        "Show, compare, render and prove policies.",
        panel="Skills and policies",
        synonyms=("policies", "rules", "sandbox", "permissions", "security"),
        examples="hermes_exec_policies.cli.examples:EXAMPLES",
    ),
)
