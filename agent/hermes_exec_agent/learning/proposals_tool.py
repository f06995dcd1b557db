"""The tool that proposes a change of the agent's configuration. It queues the proposal, and changes nothing else."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec.config.paths import config_folder
from hermes_exec.errors import UsageError
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.planning import HERE

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.tools.tool import Context


class ProposalArguments(ToolArguments):
    """Propose a change of your own configuration, for a person to decide later; it takes no effect by itself.

    It may change descriptions, instructions, approvals, guardrails, tools and budget in [agent], [limits], or a policy.
    """

    name: str = Field(description="A few words with hyphens, such as raise-time-limit")
    file: str = Field("hermes.toml", description="hermes.toml or policies/NAME.toml")
    change: str = Field(description="Lines such as limits.timeout_s = 60.0, or a unified diff of that file")
    reason: str
    evidence: list[int] = Field(description="Numbers of events of this conversation that show the need")


class ProposeChange(BaseTool[ProposalArguments]):
    """Queues proposals. No call asks for approval, as a person decides on each proposal at a terminal."""

    name = "propose_change"
    position = 127
    in_agent = True
    changes = False
    callable_from_scripts = False
    available_to_delegates = False
    arguments_type = ProposalArguments

    async def run(self, args: ProposalArguments, context: Context) -> Envelope:
        """Judge the change and queue it."""
        if context.proposals is None:
            raise UsageError("this conversation may not propose changes", remedy="tell the person")
        sources = context.provenance.to_record()
        name, marks = await asyncio.to_thread(_propose, context.proposals, args, context.conversation, sources)
        lines = [f"proposal {name} waits for a person: hermes-exec proposals show {name}", *marks]
        return Envelope(ok=True, place=HERE, output="\n".join(lines), note="it is not in effect; go on without it")


def _propose(
    log: EventLog, args: ProposalArguments, conversation: str, sources: dict[str, object]
) -> tuple[str, list[str]]:
    from hermes_exec_agent.learning.proposals import Draft, add_proposal, check_draft
    from hermes_exec_agent.learning.proposals_edit import apply_change, is_diff, read_values
    from hermes_exec_agent.learning.proposals_judge import judge_change, read_files

    draft = Draft(args.name, args.file, args.change, args.reason, conversation, tuple(args.evidence))
    check_draft(log, draft)
    files = read_files(config_folder(os.environ))
    before = files.get(draft.file)
    judgement = judge_change(files, draft.file, apply_change(draft.file, draft.change, before))
    values = {} if is_diff(draft.change) else {"was": read_values(draft.change, before)}
    proposal = add_proposal(log, draft, judgement.marks, {**sources, **values})
    return proposal.name, judgement.marks
