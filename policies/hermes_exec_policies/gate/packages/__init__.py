"""The packages of a skill: named by it, chosen and fetched by us, unpacked where nothing can be reached, and kept."""
