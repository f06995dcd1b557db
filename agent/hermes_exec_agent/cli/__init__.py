"""The commands of the agent, such as ``chat``, ``memory`` and ``skill``; and the program ``hermes-cli``."""

from hermes_exec.cli.commands import Command

_AGENT = "Agent"
_LEARNING = "Learning"
_SKILLS = "Skills and policies"
_EXAMPLES = "hermes_exec_agent.cli.examples:EXAMPLES"


def _agent(name: str, summary: str, panel: str, synonyms: str = "", *, fast: str = "") -> Command:
    fast = f"hermes_exec_agent.cli.{fast}" if fast else ""
    return Command(name, f"hermes_exec_agent.cli.{name}", summary, fast, panel, tuple(synonyms.split()), _EXAMPLES)


COMMANDS = (
    _agent(
        "chat",
        "Talk to the agent, which works in a target.",
        _AGENT,
        "ask talk agent prompt assistant ai start",
        fast="start_chat:prepare_chat",
    ),
    _agent(
        "conversations",
        "List, show, search and export conversations.",
        _AGENT,
        "conversation sessions session chats threads history resume list",
    ),
    _agent("memory", "Show and change what the agent remembers.", _AGENT, "remember memories notes forget"),
    _agent("user", "Show and change the facts about a person.", _AGENT, "users person people me whoami"),
    _agent("cron", "Run requests and commands at their time.", _AGENT, "schedule scheduler crontab timer every at"),
    _agent("serve", "Serve the agent over HTTP.", _AGENT, "server api http daemon listen"),
    _agent(
        "web", "Show terminals, conversations, skills and costs in a browser.", _AGENT, "browser ui dashboard page view"
    ),
    _agent(
        "gateway",
        "Reach the agent from messengers.",
        _AGENT,
        "messenger telegram slack whatsapp discord signal irc bot pair",
    ),
    _agent("mcp", "Serve a target over MCP, and use tools of other servers.", _AGENT, "tools servers protocol"),
    _agent(
        "skill",
        "Register, run, inspect and verify skills.",
        _SKILLS,
        "skills plugin plugins recipe recipes tool tools add install import",
        fast="skill_run:prepare_skill_run",
    ),
    _agent("audit", "Report on what tasks of the agent cost and how they ended.", _LEARNING, "usage report stats"),
    _agent("batch", "Run many trials of tasks, and report on them.", _LEARNING, "eval evaluate trials rollouts"),
    _agent("rl", "Post scored groups of trials to a trainer.", _LEARNING, "train training reinforcement atropos"),
    _agent("learn", "List and judge outcomes of tasks, and measure what helps.", _LEARNING, "outcomes rate judge"),
    _agent("curator", "Archive unused skills of the agent, and merge similar ones.", _LEARNING, "curate archive merge"),
    _agent("review", "Look at past tasks once more, and keep what is worth it.", _LEARNING, "reviews reflect"),
    _agent("proposals", "Decide on changes that the agent proposes to itself.", _LEARNING, "proposal suggestions"),
)


def main() -> int:
    """Run ``hermes-cli``, which is ``hermes-exec chat``; options of ``hermes-exec`` itself may come first."""
    from hermes_exec.cli import main as run_command_line

    return run_command_line("chat")
