"""Shell text that tells whether a guest runs in a container or a sandbox of ours.

A guest and the processes that watch over its jobs are known by their argv. Its files prove nothing: they stay where
all of these are killed at once, and a container that took them for a guest would stay for as long as a job may.
"""

from __future__ import annotations

HAS_GUEST = r"""
has_guest() {
  for has_cmdline in /proc/[0-9]*/cmdline; do
    while read -r has_text || [ -n "$has_text" ]; do
      case $has_text in *"'<"h"x "*) return 0 ;; esac
    done 2>/dev/null <"$has_cmdline"
  done
  return 1
}
"""
"""A function that succeeds if there is one. It needs no program, and does not find the argv that it stands in.

Its variables begin with ``has_``.
"""
