"""Guides as a review writes them, and patches that make and change them."""

from __future__ import annotations

from hermes_exec_agent.learning.guide_form import SECTIONS

NAME = "publish-page"
ABOUT = "Publishes the static page on the staging server. Use when a page has to go live."
STEPS = "1. `make page`\n2. `rsync -a out/ staging:/srv/page/`"


def manifest(name: str = NAME, about: str = ABOUT, **sections: str) -> str:
    texts = {**{each.lower(): f"{each} of it." for each in SECTIONS}, "steps": STEPS, **sections}
    body = "\n\n".join(f"## {name.capitalize()}\n{text}" for name, text in texts.items() if text)
    return f"---\nname: {name}\ndescription: {about}\n---\n# Publish\n\n{body}\n"


def add_file(text: str, path: str = "SKILL.md") -> str:
    lines = "\n".join(f"+{line}" for line in text.splitlines())
    return f"*** Begin Patch\n*** Add File: {path}\n{lines}\n*** End Patch"


def change_line(old: str, new: str) -> str:
    lines = "\n".join(f"+{line}" for line in new.splitlines())
    return f"*** Begin Patch\n*** Update File: SKILL.md\n@@\n-{old}\n{lines}\n*** End Patch"
