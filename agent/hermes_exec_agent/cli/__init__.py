"""The commands of the agent, such as ``chat``, ``memory`` and ``skill``; and the program ``hermes-cli``."""

from hermes_exec.cli.commands import Command

COMMANDS = (
    Command("audit", "hermes_exec_agent.cli.audit", "Report on what tasks of the agent cost and how they ended."),
    Command("batch", "hermes_exec_agent.cli.batch", "Run many trials of tasks, and report on them."),
    Command(
        "chat",
        "hermes_exec_agent.cli.chat",
        "Talk to the agent, which works in a target.",
        fast="hermes_exec_agent.cli.start_chat:prepare_chat",
    ),
    Command("conversations", "hermes_exec_agent.cli.conversations", "List, show, search and export conversations."),
    Command("cron", "hermes_exec_agent.cli.cron", "Run requests and commands at their time."),
    Command("gateway", "hermes_exec_agent.cli.gateway", "Reach the agent from messengers."),
    Command("learn", "hermes_exec_agent.cli.learn", "List and judge outcomes of tasks, and measure what helps."),
    Command("curator", "hermes_exec_agent.cli.curator", "Archive unused skills of the agent, and merge similar ones."),
    Command("mcp", "hermes_exec_agent.cli.mcp", "Serve a target over MCP, and use tools of other servers."),
    Command("memory", "hermes_exec_agent.cli.memory", "Show and change what the agent remembers."),
    Command("review", "hermes_exec_agent.cli.review", "Look at past tasks once more, and keep what is worth it."),
    Command("proposals", "hermes_exec_agent.cli.proposals", "Decide on changes that the agent proposes to itself."),
    Command("serve", "hermes_exec_agent.cli.serve", "Serve the agent over HTTP."),
    Command(
        "skill",
        "hermes_exec_agent.cli.skill",
        "Register, run, inspect and verify skills.",
        fast="hermes_exec_agent.cli.skill_run:prepare_skill_run",
    ),
    Command("user", "hermes_exec_agent.cli.user", "Ask and tell what is known about a person."),
)


def main() -> int:
    """Run ``hermes-cli``, which is ``hermes-exec chat``; options of ``hermes-exec`` itself may come first."""
    from hermes_exec.cli import main as run_command_line

    return run_command_line("chat")
