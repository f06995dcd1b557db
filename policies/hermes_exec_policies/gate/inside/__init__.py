"""Programs that are sent to a skill's sandbox as text and run there. Their output is as untrusted as the skill's."""
