"""Our Terminal as the environment of other projects' harnesses; each module needs the package of that project."""
