class YAMLError(Exception): ...
class SafeLoader: ...
class SafeDumper: ...

class Node:
    value: object

class ScalarNode(Node):
    def __init__(self, tag: str, value: str) -> None: ...

class CollectionNode(Node):
    flow_style: bool | None

class MappingNode(CollectionNode): ...

def compose(stream: str, Loader: type[SafeLoader]) -> Node | None: ...  # noqa: N803  its own name
def serialize(node: Node, *, Dumper: type[SafeDumper], allow_unicode: bool) -> str: ...  # noqa: N803  its own name
