"""Which checkpoint answers a request."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from models_laya.language import Detection, detect
from system1_core.errors import InvalidRequest, NotFound

ALIASES = {
    "english": ("en", "laya-english"),
    "multilingual": ("multi", "ml", "laya-multilingual", "convaiinnovations/laya-multilingual"),
    "typed-decisions": (
        "typed",
        "typed_decisions",
        "decisions",
        "laya-typed-decisions",
        "convaiinnovations/laya-typed-decisions",
    ),
}
# Names that mean the family, not a checkpoint, wherever the grammar does not say otherwise.
FAMILY_REPO = "convaiinnovations/laya"
_WORKFLOWS = {
    frozenset(ids.split()): name
    for name, ids in {
        "agent_trace": "action needs_review outcome risk urgency",
        "support": "action category churn_risk needs_human urgency",
        "document_match": "discrepancy_severity disposition duplicate matches_order urgency",
        "security_alert": "credential_compromise disposition severity true_positive urgency",
    }.items()
}
_ENGLISH_CODES = {"en", "eng", "english"}
_SILENT_CODES = {"", "c", "posix", "und", "zxx", "mul"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The checkpoint, and why; `detection` is None where nothing had to be detected."""

    model: str
    reason: str
    detection: Detection | None = None
    workflow: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The routing block of a response."""
        return {
            "model": self.model,
            "reason": self.reason,
            "detection": None if self.detection is None else self.detection.as_json(),
            "workflow": self.workflow,
        }


def reference_name(name: str) -> str | None:
    """The checkpoint a name of the original's grammar means: there "laya" is the English one."""
    key = name.strip().lower()
    return "english" if key in ("laya", "default") else checkpoint_named(key)


def checkpoint_named(name: str) -> str | None:
    """The checkpoint that `name` or one of its aliases means, case and outer space ignored."""
    key = name.strip().lower()
    for checkpoint, aliases in ALIASES.items():
        if key in (checkpoint, *aliases):
            return checkpoint
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """The loaded checkpoints, the one for undecided texts, and whether question ids decide."""

    loaded: Collection[str]
    default: str = "multilingual"
    auto_task: bool = False

    def route(
        self,
        state: Any,
        question_ids: Collection[str],
        *,
        model: str | None = None,
        pinned: str | None = None,
        task: str | None = None,
        lang: str | None = None,
        lang_guess: str | None = None,
    ) -> Route:
        """First that decides: the pin, task, ids, lang, lang_guess, the text, the default.

        `pinned` is the checkpoint that `model`, as the client wrote it, means. Raises
        InvalidRequest for an unknown task, NotFound for a checkpoint that is not loaded.
        """
        workflow = _WORKFLOWS.get(frozenset(question_ids))
        if pinned is not None:
            return Route(model=self._loaded(pinned), reason=f"explicit model={model!r}")
        if task is not None:
            return self._by_task(task, workflow)
        if self.auto_task and workflow and "typed-decisions" in self.loaded:
            reason = f"question ids of the typed-decisions workflow {workflow!r}"
            return Route(model="typed-decisions", reason=reason, workflow=workflow)
        for name, code in (("explicit lang", lang), ("lang_guess", lang_guess)):
            if (english := is_english_code(code)) is not None:
                wanted = "english" if english else "multilingual"
                return self._closest(wanted, f"{name}={code!r}", None, workflow)
        if len(self.loaded) == 1:
            (only,) = self.loaded
            return Route(model=only, reason="the only checkpoint served")
        return self._by_text(detect(state), workflow)

    def _by_task(self, task: str, workflow: str | None) -> Route:
        named = None if "/" in task else reference_name(task)
        if named is None:
            raise InvalidRequest.at(
                ("task",),
                f"task {task[:100]!r} is unknown; use one of {', '.join(ALIASES)}",
                input=task,
            )
        reason = f"explicit task={task!r}"
        return Route(model=self._loaded(named), reason=reason, workflow=workflow)

    def _by_text(self, detection: Detection, workflow: str | None) -> Route:
        wanted = {True: "english", False: "multilingual", None: self.default}[detection.verdict]
        reason = detection.reason
        if detection.verdict is None:
            reason = f"{reason}; using the default ({self.default})"
        return self._closest(wanted, reason, detection, workflow)

    def _loaded(self, name: str) -> str:
        if name not in self.loaded:
            raise NotFound(
                f"model {name!r} is not served here; this server has {', '.join(self.loaded)}"
            )
        return name

    def _closest(
        self, wanted: str, reason: str, detection: Detection | None, workflow: str | None
    ) -> Route:
        """A hint is no order: what is not served is answered by the closest that is."""
        model = wanted
        if wanted not in self.loaded:
            model = next(iter(self.loaded))
            reason = f"{reason}; {wanted!r} is not served here, answered by {model!r}"
        return Route(model=model, reason=reason, detection=detection, workflow=workflow)


def is_english_code(code: str | None) -> bool | None:
    """Whether a language code means English; None where it says nothing."""
    if code is None:
        return None
    primary = re.split(r"[-_.@\s]", code.strip().lower(), maxsplit=1)[0]
    return None if primary in _SILENT_CODES else primary in _ENGLISH_CODES


def routing_json(route: Route, folders: Mapping[str, str]) -> dict[str, Any]:
    """The routing block with the folder that holds the checkpoint."""
    shown = route.as_json()
    return {"model": shown.pop("model"), "repo": folders[route.model], **shown}
