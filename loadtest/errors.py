"""What can be wrong with a load before it runs.

LoadTestError
├── PlanError      scenario, plan or one of their files
└── TargetError    the server under test can't be reached or refuses the first request
"""


class LoadTestError(Exception):
    """Base of this package's errors; `message` is one line for people."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PlanError(LoadTestError):
    """The load as described can't be run."""


class TargetError(LoadTestError):
    """The server under test doesn't answer as it must."""
