"""Engine environments: vLLM in an environment of its own, apart from the control plane's."""

from controlplane.engine_envs.environments import (
    EngineEnv,
    InstallError,
    Installing,
    find,
    installed,
    last_error,
)

__all__ = ["EngineEnv", "InstallError", "Installing", "find", "installed", "last_error"]
