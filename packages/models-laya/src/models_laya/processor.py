"""From a request to packed rows, and from logits to answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models_laya.options import LayaOptions
from models_laya.outcome import decide, first_best, make_result
from models_laya.questions import LayaRequest, make_asked
from models_laya.reading import Reading
from models_laya.rounds import Part, Round, Session, next_round
from models_laya.routing import Route, Router, checkpoint_named, reference_name
from models_laya.tournament import entrants, make_tournament
from system1_core.answers import Result
from system1_core.processor import Prepared, Processor
from system1_core.request import Request, json_text


class LayaProcessor(Processor):
    """Serves every loaded checkpoint; a request in the original's grammar is a LayaRequest."""

    def __init__(self, parts: Mapping[str, Part], router: Router, options: LayaOptions) -> None:
        self._parts, self._router, self._options = dict(parts), router, options

    def prepare(self, request: Request) -> Prepared:
        is_reference = isinstance(request, LayaRequest)
        route = self._route(request)
        part = self._parts[route.model]
        asked = [make_asked(each, is_reference=is_reference) for each in request.questions]
        tournament = make_tournament(self._options.tournament_group, is_reference=is_reference)
        over = entrants(tournament, asked)
        max_len, head_max_len = self._budgets(request, part)
        session = Session(
            part=part,
            route=route,
            asked=asked,
            state_ids=part.tokens.encode(json_text(request.state)),
            keeps_end=isinstance(request.state, list),
            max_len=max_len,
            head_max_len=head_max_len,
            long_state="cut" if is_reference else self._options.long_state,
            tournament=tournament,
            alive={index: tuple(range(len(each.labels))) for index, each in enumerate(asked)},
            rounds=dict.fromkeys(over, 0),
        )
        return next_round(session)

    def finish(self, context: Round, outputs: Sequence[Reading]) -> Result | Prepared:
        session, left = context.session, iter(outputs)
        outcomes = [
            decide(session, entry, [next(left) for _ in entry.windows]) for entry in context.entries
        ]
        if context.is_final:
            return make_result(session, context.entries, outcomes, self._folders)
        winners: dict[int, list[int]] = {}
        for entry, outcome in zip(context.entries, outcomes, strict=True):
            best = first_best(outcome.probabilities)
            winners.setdefault(entry.index, []).append(entry.options[best])
        for index, survivors in winners.items():
            session.alive[index] = tuple(survivors)
            session.rounds[index] += 1
        return next_round(session)

    @property
    def _folders(self) -> dict[str, str]:
        return {name: part.folder for name, part in self._parts.items()}

    def _route(self, request: Request) -> Route:
        ids = [question.id for question in request.questions]
        if isinstance(request, LayaRequest):
            return self._router.route(
                request.state,
                ids,
                model=request.model,
                pinned=None if request.model is None else reference_name(request.model),
                task=request.task,
                lang=request.lang,
                lang_guess=request.lang_guess,
            )
        pinned = None if request.model is None else checkpoint_named(request.model)
        return self._router.route(request.state, ids, model=request.model, pinned=pinned)

    def _budgets(self, request: Request, part: Part) -> tuple[int, int]:
        """(max_len, head_max_len): the request's, else the options', else the checkpoint's."""
        max_len = self._options.max_len or part.config.max_len
        head_max_len = self._options.head_max_len or part.config.head_max_len
        if isinstance(request, LayaRequest):
            max_len = request.max_len or max_len
            head_max_len = request.head_max_len or head_max_len
        return max_len, head_max_len
