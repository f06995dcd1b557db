"""The variables of this process that commands on this machine inherit.

=============  ====================================================================================================
``clean``      the user, the folder, the terminal and the locale
``tools``      these, and what finds programs: virtual environments, modules, compilers, CUDA, Slurm, caches,
               proxies
``all``        every variable
patterns       ``clean``, and the variables that match one of them
=============  ====================================================================================================

A variable whose name or value looks like a secret is withheld, unless a pattern is its very name.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Literal

from hermes_exec.backend import Inherited
from hermes_exec.config.paths import home_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Inherit = Literal["clean", "tools", "all"]
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MARK = "HERMES_EXEC_AGENT"
"""The mark of an agent's shell, which no inner command loses."""
CLEAN = (
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TERMINFO", "TMPDIR",
    "XDG_RUNTIME_DIR", "XDG_STATE_HOME", _MARK,
)  # fmt: skip
TOOLS = (
    *CLEAN,
    # Python, Conda and other languages
    "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "CONDA_*", "_CONDA_*", "MAMBA_*", "PYENV_*", "NVM_*", "JAVA_HOME", "GOPATH",
    "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "JULIA_*", "R_HOME", "R_LIBS*",
    # environment modules
    "MODULEPATH*", "MODULESHOME", "MODULES_*", "LOADEDMODULES", "_LMFILES_*", "LMOD_*", "__LMOD_*", "EB*", "SPACK_*",
    # compilers and libraries
    "CC", "CXX", "FC", "F77", "F90", "LD", "AR", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "FFLAGS", "LDFLAGS", "MAKEFLAGS",
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH",
    "CMAKE_PREFIX_PATH", "MANPATH", "INFOPATH", "MPI_*", "OMPI_*", "I_MPI_*", "UCX_*", "OMP_*", "MKL*", "OPENBLAS_*",
    # accelerators
    "CUDA_*", "NVIDIA_*", "NVHPC*", "NCCL_*", "ROCM_*", "ROCR_*", "HIP_*", "HSA_*",
    # Slurm
    "SLURM_*", "SBATCH_*", "SALLOC_*", "SRUN_*", "SQUEUE_*", "SINFO_*",
    # folders of caches, which a cluster often keeps outside of the home folder
    "XDG_CACHE_HOME", "PIP_CACHE_DIR", "UV_CACHE_DIR", "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "SINGULARITY_CACHEDIR",
    "SINGULARITY_TMPDIR",
    # the network
    "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY",
    "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
)  # fmt: skip
_SECRET_WORDS = frozenset(
    {
        "APIKEY", "AUTH", "BEARER", "COOKIE", "COOKIES", "CREDENTIAL", "CREDENTIALS", "CREDS", "DSN", "JWT", "KEY",
        "KEYS", "PASS", "PASSPHRASE", "PAT", "PRIVATE", "PW", "PWD",
    }
)  # fmt: skip
_SECRET_ENDS = ("TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWORDS", "PASSWD")
_HARMLESS = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})
"""Names with such a word, of variables that hold a path."""
_WILD = frozenset("*?[")
_PASSWORD_IN_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*://|^)[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)


def select_variables(environ: Mapping[str, str], inherit: Inherit | Sequence[str]) -> Inherited:
    """Return the part of an environment that commands inherit, with a PATH and a HOME in any case."""
    patterns = (
        {"clean": CLEAN, "tools": TOOLS, "all": ("*",)}[inherit] if isinstance(inherit, str) else (*CLEAN, *inherit)
    )
    named = frozenset[str]() if isinstance(inherit, str) else frozenset(inherit)
    chosen = _Names(patterns)
    found = {name: value for name, value in environ.items() if chosen.matches(name)}
    withheld = [name for name, value in found.items() if name not in named and looks_secret(name, value)]
    variables = {name: value for name, value in found.items() if name not in withheld}
    variables.setdefault("PATH", _PATH)
    variables.setdefault("HOME", str(home_folder(environ)))
    return Inherited(variables, tuple(sorted(withheld)))


class _Names:
    """Names by patterns of a shell; one expression of them all takes as long to compile as a target to open."""

    def __init__(self, patterns: Iterable[str]) -> None:
        kinds: dict[str, list[str]] = {"": [], "*": [], "?": []}
        for each in patterns:
            begin = each.removesuffix("*")
            kinds["?" if _WILD.intersection(begin) else each[len(begin) :]].append(each)
        self._whole = frozenset(kinds[""])
        self._begins = tuple(each[:-1] for each in kinds["*"])
        self._others = kinds["?"]

    def matches(self, name: str) -> bool:
        """Whether one of the patterns matches."""
        return (
            name in self._whole
            or name.startswith(self._begins)
            or any(fnmatch.fnmatchcase(name, each) for each in self._others)
        )


def looks_secret(name: str, value: str) -> bool:
    """Whether a word of the name is one for secrets, or the value has a password before an ``@``."""
    words = [] if name in _HARMLESS else name.upper().split("_")
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) for word in words) or bool(
        _PASSWORD_IN_URL.search(value)
    )
