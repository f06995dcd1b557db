"""The tools of the set ``web``: search the web, and read the text of a page."""
