"""Parse the front matter of SKILL.md with the format's reference library, in a child process, as it may hang."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the fields and the body of a text, and all errors for a folder of the given name."""
    import strictyaml
    from skills_ref.errors import SkillError
    from skills_ref.parser import parse_frontmatter
    from skills_ref.validator import validate_metadata

    try:
        fields, body = parse_frontmatter(question["text"])
        raw = cast("dict[str, object]", strictyaml.load(question["text"].split("---", 2)[1]).data)
    except SkillError as error:
        return {"errors": [str(error).split("\n", 1)[0]], "fields": {}, "body": ""}
    errors = validate_metadata(fields, Path(question["folder"]))
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, object]", metadata).values()
    ):
        errors.append("Field 'metadata' must be a mapping of words to text")
    errors += [
        f"Field '{name}' must be text"
        for name in ("license", "compatibility", "allowed-tools", "description", "name")
        if name in fields and not isinstance(fields[name], str)
    ]
    return {"errors": errors, "fields": fields, "body": body}
