# The C half of signal, which costs the guest less to import; typeshed has no entry for it.
from signal import *  # noqa: F403  all of it, under its other name
