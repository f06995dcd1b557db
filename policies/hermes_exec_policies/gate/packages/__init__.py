"""The packages of a skill: it names them, we resolve and fetch them, unpack them without a network, and keep them."""
