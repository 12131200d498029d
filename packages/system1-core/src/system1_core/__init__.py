"""system1: fast serving of decision models for agents."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("system1-core")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.3.0"

from system1_core.answers import (
    Answer,
    ChoiceAnswer,
    NoulAnswer,
    Result,
    ScoreAnswer,
    choice_confidence,
    one_hot,
    score_confidence,
    softmax,
)
from system1_core.backend import Backend
from system1_core.checkpoint import Checkpoint
from system1_core.errors import (
    CheckpointError,
    DependencyFailed,
    DeviceLost,
    InvalidRequest,
    TooLarge,
)
from system1_core.executor import Executor
from system1_core.family import Load, ModelFamily, Option, Replacement, Route, SchedulerKind
from system1_core.hookspecs import hookimpl
from system1_core.processor import Prepared, Processor, Prompt
from system1_core.request import Image, Question, Request, json_text, placeholder_pattern
from system1_core.scheduler import Scheduler, SchedulerLimits

__all__ = [
    "Answer",
    "Backend",
    "Checkpoint",
    "CheckpointError",
    "ChoiceAnswer",
    "DependencyFailed",
    "DeviceLost",
    "Executor",
    "Image",
    "InvalidRequest",
    "Load",
    "ModelFamily",
    "NoulAnswer",
    "Option",
    "Prepared",
    "Processor",
    "Prompt",
    "Question",
    "Replacement",
    "Request",
    "Result",
    "Route",
    "Scheduler",
    "SchedulerKind",
    "SchedulerLimits",
    "ScoreAnswer",
    "TooLarge",
    "__version__",
    "choice_confidence",
    "hookimpl",
    "json_text",
    "one_hot",
    "placeholder_pattern",
    "score_confidence",
    "softmax",
]
