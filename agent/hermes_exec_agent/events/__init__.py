"""The one append-only record of conversations; resuming, listing, searching and exporting are views of it."""
