from collections.abc import Iterator

class PotentialSecret:
    type: str

def scan_line(line: str) -> Iterator[PotentialSecret]: ...
