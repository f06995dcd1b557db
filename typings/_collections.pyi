# The C half of collections, which costs the guest less to import; typeshed has no entry for it.
from collections import OrderedDict as OrderedDict
from collections import defaultdict as defaultdict
from collections import deque as deque
