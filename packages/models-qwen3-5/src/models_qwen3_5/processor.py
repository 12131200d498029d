"""The plain reader's host side: questions to letter prompts, letters to answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from models_qwen3_5.chat import (
    IMAGE_PLACEHOLDER,
    ChatTemplate,
    Message,
    load_tokenizer,
    place_images,
    single_tokens,
)
from models_qwen3_5.config import ModelConfig, read_config
from models_qwen3_5.encoder import TextEncoder
from models_qwen3_5.images import (
    ImageRefused,
    ImageSettings,
    PreparedImage,
    image_size,
    num_tokens_of,
    prepare_images,
    read_image_settings,
)
from models_qwen3_5.reader import (
    LETTERS,
    NO_INSTRUCTIONS,
    SYSTEM,
    Mentions,
    PlainText,
    Temperatures,
    groups_of,
    joined,
    option_lines,
    question_text,
    state_text,
)
from models_qwen3_5.sequence import ImageSpan, Reads, SequencePrompt
from system1_core.answers import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer, softmax
from system1_core.errors import CheckpointError, InvalidRequest
from system1_core.processor import Prepared, Processor
from system1_core.request import Question, Request, json_text


@dataclass(frozen=True, slots=True)
class _Round:
    """What the prompts of one round ask: for each, its question and the options it shows."""

    shown: _Shown
    asked: tuple[tuple[int, Sequence[int]], ...]
    first: dict[int, list[list[float]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A request as the model reads it."""

    questions: tuple[Question, ...]
    images: tuple[PreparedImage, ...]
    state: str
    instructions: tuple[str, ...]
    options: tuple[list[str], ...]
    heads: dict[str, tuple[list[int], tuple[ImageSpan, ...]]] = field(default_factory=dict)


class ReaderProcessor(Processor):
    """Reads any plain chat checkpoint as a decision model; raises CheckpointError at once where
    its template, tokenizer and config do not fit together.

    With `on_device` images are resized by the executor.
    """

    def __init__(
        self,
        folder: Path,
        *,
        temperatures: Temperatures | None = None,
        max_length: int = 16_384,
        on_device: bool = False,
    ) -> None:
        config = read_config(folder)
        self.temperatures = temperatures or Temperatures()
        self.max_length = min(max_length, config.text.max_position_embeddings)
        self._template = ChatTemplate.load(folder)
        self._tokenizer = load_tokenizer(folder)
        _check_vocabulary(self._tokenizer.get_vocab_size(), config, folder)
        self._encoder = TextEncoder(self._tokenizer)
        added = self._tokenizer.get_added_tokens_decoder().values()
        self._plain = PlainText([token.content for token in added])
        file = folder / "tokenizer.json"
        self._letters = single_tokens(self._tokenizer, LETTERS, file)
        self._image_token_id = config.image_token_id
        self._settings: ImageSettings | None = None
        if config.vision is not None:
            self._settings = replace(read_image_settings(folder), on_device=on_device)
            _check_settings(self._settings, config, folder)
            if self._tokenizer.token_to_id(IMAGE_PLACEHOLDER) != config.image_token_id:
                raise CheckpointError(
                    f"{file}: {IMAGE_PLACEHOLDER} is not token {config.image_token_id}, as "
                    "config.json has it; fetch both files again"
                )
        self._check_template()

    def render(self, text: str, num_images: int) -> str:
        """The prompt of one user's turn: the images, numbered, then the text."""
        content: list[dict[str, str]] = []
        for number in range(1, num_images + 1):
            content += [{"type": "text", "text": f"Image {number}: "}, {"type": "image"}]
            content.append({"type": "text", "text": "\n"})
        content.append({"type": "text", "text": text})
        messages: list[Message] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": content if num_images else text},
        ]
        # The answer is the next token, so the checkpoint must not think aloud first.
        return self._template.render(messages, enable_thinking=False)

    def _check_template(self) -> None:
        """The template must write the user's text as it is, and one placeholder for an image."""
        probe = state_text("x") + question_text("y", ["z"])
        for num_images in (0, 1) if self._settings else (0,):
            text = self.render(probe, num_images)
            if probe not in text or text.count(IMAGE_PLACEHOLDER) != num_images:
                raise CheckpointError(
                    f"{self._template.file}: shows a turn of text and {num_images} images as "
                    f"{text[-200:]!r}; fetch the template of this checkpoint"
                )

    def prepare(self, request: Request) -> Prepared:
        shown = self._shown(request)
        asked = tuple(
            (index, group)
            for index, options in enumerate(shown.options)
            for group in groups_of(len(options))
        )
        return self._round(_Round(shown, asked))

    def finish(
        self, context: _Round, outputs: Sequence[Sequence[float]]
    ) -> list[Answer] | Prepared:
        questions = context.shown.questions
        found: dict[int, list[list[float]]] = {}
        for (index, _), logits in zip(context.asked, outputs, strict=True):
            temperature = self.temperatures.of(questions[index])
            found.setdefault(index, []).append(softmax(logits, temperature))
        if context.first:
            found = context.first | {
                index: [joined(context.first[index], final[0])] for index, final in found.items()
            }
        elif finals := self._finals(context, found):
            return self._round(_Round(context.shown, finals, found))
        return [_answer(question, found[index][0]) for index, question in enumerate(questions)]

    def _finals(
        self, context: _Round, found: dict[int, list[list[float]]]
    ) -> tuple[tuple[int, Sequence[int]], ...]:
        """For each question of several groups, the winners that meet again."""
        finals = []
        for index, groups in found.items():
            if len(groups) > 1:
                spans = groups_of(len(context.shown.options[index]))
                pairs = zip(spans, groups, strict=True)
                finals.append((index, [span[group.index(max(group))] for span, group in pairs]))
        return tuple(finals)

    def _shown(self, request: Request) -> _Shown:
        mentions = Mentions(tuple(request.images))

        def text(value: object) -> str:
            return self._plain.of(json_text(mentions.replaced(value)))

        return _Shown(
            questions=request.questions,
            images=self._images(request),
            state=text(request.state),
            instructions=tuple(
                NO_INSTRUCTIONS[q.type] if q.instructions is None else text(q.instructions)
                for q in request.questions
            ),
            options=tuple(option_lines(question, text) for question in request.questions),
        )

    def _images(self, request: Request) -> tuple[PreparedImage, ...]:
        """All images, decoded only when their headers say that they fit together."""
        settings = self._settings
        if not request.images:
            return ()
        if settings is None:
            raise InvalidRequest.at(
                ("assets",), "this checkpoint has no vision tower: leave the images out"
            )
        total = 0
        for name, image in request.images.items():
            with _named(name):
                total += num_tokens_of(*image_size(image.data), settings)
        if total > self.max_length:
            raise InvalidRequest.at(
                ("assets",),
                f"{len(request.images)} images take {total} tokens, limit {self.max_length}; "
                "send fewer or smaller ones",
            )
        images = prepare_images([image.data for image in request.images.values()], settings)
        prepared = []
        for name in request.images:
            with _named(name):
                prepared.append(next(images))
        return tuple(prepared)

    def _round(self, context: _Round) -> Prepared:
        prompts = [self._prompt(context.shown, *asked) for asked in context.asked]
        return Prepared(prompts, context)

    def _prompt(self, shown: _Shown, index: int, group: Sequence[int]) -> SequencePrompt:
        options = [shown.options[index][option] for option in group]
        state, question = state_text(shown.state), question_text(shown.instructions[index], options)
        text = self.render(state + question, len(shown.images))
        split = text.rindex(question)
        head, spans = self._head(shown, text[:split])
        token_ids = [*head, *self._encoder.encode_kept(text[split:])]
        if len(token_ids) > self.max_length:
            raise shown.questions[index].invalid(
                f"{len(token_ids)} tokens with its state, limit {self.max_length}; "
                "shorten the state or ask about parts of it"
            )
        reads = Reads(logits=(len(token_ids) - 1,), logit_ids=self._letters[: len(options)])
        return SequencePrompt(token_ids, reads=reads, images=spans)

    def _head(self, shown: _Shown, text: str) -> tuple[list[int], tuple[ImageSpan, ...]]:
        """Tokens up to the question, once per request: a long state takes longest.

        The rule that splits words never joins a line's end to the letter behind it, so both parts
        together have the tokens of the whole.
        """
        if text not in shown.heads:
            token_ids = self._encoder.encode(text)
            spans: tuple[ImageSpan, ...] = ()
            if shown.images:
                assert self._image_token_id is not None
                token_ids, spans = place_images(token_ids, self._image_token_id, shown.images)
            shown.heads[text] = token_ids, spans
        return shown.heads[text]


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Turns a refused image into a 422 that names it."""
    try:
        yield
    except ImageRefused as error:
        raise InvalidRequest.at(("assets", name), f"image {name!r}: {error}") from error


def _answer(question: Question, chances: Sequence[float]) -> Answer:
    if question.type == "noul":
        return NoulAnswer(probability=chances[0])
    if question.type == "score":
        return ScoreAnswer(probabilities=chances)
    return ChoiceAnswer(probabilities=dict(zip(question.options, chances, strict=True)))


def _check_vocabulary(size: int, config: ModelConfig, folder: Path) -> None:
    if size > config.text.vocab_size:
        raise CheckpointError(
            f"{folder / 'tokenizer.json'}: {size} tokens, the checkpoint has "
            f"{config.text.vocab_size} rows; fetch the tokenizer of this checkpoint"
        )


def _check_settings(settings: ImageSettings, config: ModelConfig, folder: Path) -> None:
    vision = config.vision
    assert vision is not None
    found = (settings.patch_size, settings.merge_size)
    if found != (vision.patch_size, vision.spatial_merge_size):
        raise CheckpointError(
            f"{folder}: the image processor cuts patches of {found}, config.json has "
            f"{(vision.patch_size, vision.spatial_merge_size)}; fetch both files again"
        )
