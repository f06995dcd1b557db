"""Programs that are started in a skill's sandbox, sent as text. They are no judges: what they say is a skill's word."""
