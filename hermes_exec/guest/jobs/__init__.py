"""Jobs: commands that outlive every connection."""
