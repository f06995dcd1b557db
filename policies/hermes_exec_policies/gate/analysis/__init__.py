"""Analysis of a skill's text. A child process calls these modules (`child_process.py`); they run no code of a skill.

They do without asyncio, pydantic and policies, whose import would take the child longer than its work.
"""
