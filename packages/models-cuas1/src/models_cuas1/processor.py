"""The host side: a screen and its questions to letter prompts, letters to probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from models_cuas1.grammar import ReferenceRequest
from models_cuas1.prompt import (
    IMAGE,
    LETTERS,
    MEDIA_TOKENS,
    MULTIMODAL,
    SYSTEM,
    TEXT,
    goal_of,
    image_text,
    image_turn,
    labels_of,
    text_parts,
    text_turn,
)
from models_cuas1.screen import MAX_IMAGE_BYTES, image_of_url, is_picture, picture_of
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
    ImageLimits,
    ImageRefused,
    ImageSettings,
    PreparedImage,
    decode_image,
    prepare_image,
    read_image_settings,
)
from models_qwen3_5.sequence import ImageSpan, Reads, SequencePrompt
from system1_core.answers import ChoiceAnswer, Result, softmax
from system1_core.errors import CheckpointError, InvalidRequest, TooLarge
from system1_core.processor import Prepared, Processor
from system1_core.request import Image, Question, Request, json_text

MAX_TOKENS = {TEXT: 16_384, MULTIMODAL: 4_096}
# Of the goal, of one label, and of the goal with all escaped labels, beside a picture.
MAX_CHARS = 16_384
_PICTURE = ImageLimits(
    max_bytes=MAX_IMAGE_BYTES, max_side=2048, max_pixels=1_048_576, single_picture=True
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What `finish` needs of a request."""

    questions: tuple[Question, ...]
    modality: str
    input_tokens: int


class CuaProcessor(Processor):
    """Checks that the folder's tokenizer, template and config make the prompt the adapters know.

    `folder` holds the base's files, `modalities` are those with a loaded adapter; with `on_device`
    images are resized by the executor. Raises CheckpointError.
    """

    def __init__(
        self,
        folder: Path,
        modalities: Sequence[str],
        split: str | None = None,
        *,
        on_device: bool = False,
    ) -> None:
        config = read_config(folder)
        self.modalities = tuple(modalities)
        tokenizer = load_tokenizer(folder, split)
        self._encoder = TextEncoder(tokenizer)
        self._letters = single_tokens(tokenizer, LETTERS, folder / "tokenizer.json")
        _check_vocabulary(tokenizer.get_vocab_size(), config, folder)
        self._max_tokens = {
            modality: min(limit, config.text.max_position_embeddings)
            for modality, limit in MAX_TOKENS.items()
        }
        self._image_token_id = config.image_token_id
        self._settings: ImageSettings | None = None
        if MULTIMODAL in modalities:
            self._settings = replace(read_image_settings(folder), on_device=on_device)
            placeholder = tokenizer.token_to_id(IMAGE_PLACEHOLDER)
            _check_vision(self._settings, placeholder, config, folder)
        _check_template(ChatTemplate.load(folder), self.modalities)

    def prepare(self, request: Request) -> Prepared:
        picture = self._picture(request)
        if picture is None:
            prompts = self._text_prompts(request)
        else:
            prompts = self._image_prompts(request, picture)
        modality = TEXT if picture is None else MULTIMODAL
        total = sum(prompt.num_tokens for prompt in prompts)
        return Prepared(prompts, Asked(request.questions, modality, total))

    def finish(self, context: Asked, outputs: Sequence[Sequence[float]]) -> Result:
        answers = [
            ChoiceAnswer(probabilities=dict(zip(question.options, softmax(logits), strict=True)))
            for question, logits in zip(context.questions, outputs, strict=True)
        ]
        return Result(
            answers=answers,
            input_tokens=context.input_tokens,
            extra={"x_modality": context.modality},
        )

    def _picture(self, request: Request) -> Image | None:
        """The picture that the state is, None for text; refuses what no loaded adapter reads."""
        if isinstance(request, ReferenceRequest):
            picture = next(iter(request.images.values()), None)
        else:
            picture = picture_of(request)
            if picture is None and MULTIMODAL in self.modalities and is_picture(request.state):
                picture = image_of_url(request.state["image"])
        modality = TEXT if picture is None else MULTIMODAL
        if modality not in self.modalities:
            kind = "text" if picture is None else "an image"
            reads = "images, as the whole state" if picture is None else "text"
            raise InvalidRequest.at(
                ("state",),
                f"the state is {kind} and the adapter served here reads {reads}; serve cuas1 with "
                "both adapters",
                "modality_not_served",
            )
        return picture

    def _text_prompts(self, request: Request) -> list[SequencePrompt]:
        state = json_text(request.state)
        parts = [
            text_parts(goal_of(question), state, _labels(question))
            for question in request.questions
        ]
        # Every question shows the state behind its own goal: it is tokenised once. States change
        # from request to request, goals and options do not.
        middle, kept = self._encoder.encode(parts[0][1]), self._encoder.encode_kept
        prompts = []
        for question, (head, _, tail) in zip(request.questions, parts, strict=True):
            token_ids = [*kept(head), *middle, *kept(tail)]
            limit = self._max_tokens[TEXT]
            if len(token_ids) > limit:
                raise TooLarge(
                    f"question {question.id[:100]!r}: {len(token_ids)} tokens with its state, "
                    f"limit {limit}; shorten the state or the options"
                )
            prompts.append(self._prompt(token_ids, question, batch_key=TEXT))
        return prompts

    def _image_prompts(self, request: Request, picture: Image) -> list[SequencePrompt]:
        texts = [_image_text(question) for question in request.questions]
        image = self._prepared(picture)
        assert self._image_token_id is not None
        prompts = []
        for question, text in zip(request.questions, texts, strict=True):
            token_ids = self._encoder.encode_kept(text)
            limit = self._max_tokens[MULTIMODAL]
            length = len(token_ids) - 1 + image.num_tokens
            if length > limit:
                raise question.invalid(
                    f"{length} tokens with its image, limit {limit}; send a smaller image or "
                    "fewer words",
                    type="too_long",
                )
            grown, spans = place_images(token_ids, self._image_token_id, [image])
            prompts.append(self._prompt(grown, question, images=spans, batch_key=MULTIMODAL))
        return prompts

    def _prepared(self, picture: Image) -> PreparedImage:
        assert self._settings is not None
        try:
            decoded = decode_image(picture.data, _PICTURE)
            return prepare_image(decoded, self._settings, picture.data)
        except ImageRefused as error:
            raise InvalidRequest.at(
                ("state", "image"), f"image: {error}", "image_invalid"
            ) from None

    def _prompt(
        self,
        token_ids: list[int],
        question: Question,
        *,
        images: tuple[ImageSpan, ...] = (),
        batch_key: str,
    ) -> SequencePrompt:
        letters = self._letters[: len(question.criteria)]
        reads = Reads(logits=(len(token_ids) - 1,), logit_ids=letters)
        return SequencePrompt(token_ids, reads=reads, images=images, batch_key=batch_key)


def _labels(question: Question) -> list[str]:
    labels = labels_of(question)
    if len(labels) > len(LETTERS):
        raise question.invalid(
            f"{len(labels)} options, limit {len(LETTERS)}: each has one letter; ask about fewer, "
            "or in several questions",
            "criteria",
            type="too_long",
        )
    return labels


def _image_text(question: Question) -> str:
    """The prompt beside a picture, its texts checked before any picture is decoded."""
    goal, labels = goal_of(question), _labels(question)
    for entry in (goal, *labels):
        for token in MEDIA_TOKENS:
            if token in entry:
                raise question.invalid(
                    f"holds {token}, which stands for an image; write it in another way",
                    type="media_token",
                )
    longest = max(
        len(goal),
        *(
            len(name if entry is None else json_text(entry))
            for name, entry in question.criteria.items()
        ),
    )
    total = len(goal) + sum(map(len, labels))
    if max(longest, total) > MAX_CHARS:
        raise question.invalid(
            f"{max(longest, total)} characters in goal and options, limit {MAX_CHARS}; send fewer",
            type="too_long",
        )
    return image_text(goal, labels)


def _check_vocabulary(size: int, config: ModelConfig, folder: Path) -> None:
    if size > config.text.vocab_size:
        raise CheckpointError(
            f"{folder / 'tokenizer.json'}: {size} tokens, the base has {config.text.vocab_size} "
            "rows; fetch the tokenizer of this base"
        )


def _check_vision(
    settings: ImageSettings, placeholder: int | None, config: ModelConfig, folder: Path
) -> None:
    vision = config.vision
    if vision is None or placeholder is None or placeholder != config.image_token_id:
        raise CheckpointError(
            f"{folder}: found no vision tower whose image_token_id is that of {IMAGE_PLACEHOLDER}; "
            "name the folder of the image-text base"
        )
    found = (settings.patch_size, settings.merge_size)
    if found != (vision.patch_size, vision.spatial_merge_size):
        raise CheckpointError(
            f"{folder}: the image processor cuts patches of {found}, config.json has "
            f"{(vision.patch_size, vision.spatial_merge_size)}; fetch both files again"
        )


def _check_template(template: ChatTemplate, modalities: Sequence[str]) -> None:
    """The prompt is written here, so the checkpoint's own template must give the same."""
    goal, state, labels = "goal", "state", ["label"]
    system: Message = {"role": "system", "content": SYSTEM}
    turn = text_turn(goal, state, labels)
    asked: dict[str, tuple[Message, str]] = {
        TEXT: ({"role": "user", "content": turn}, "".join(text_parts(goal, state, labels)))
    }
    if MULTIMODAL in modalities:
        shown = image_turn(goal, labels).removeprefix(IMAGE)
        content = [{"type": "image"}, {"type": "text", "text": shown}]
        asked[MULTIMODAL] = {"role": "user", "content": content}, image_text(goal, labels)
    for modality, (user, expected) in asked.items():
        if (found := template.render([system, user])) != expected:
            raise CheckpointError(
                f"{template.file}: ends a {modality} prompt as {found[-120:]!r}, expected "
                f"{expected[-120:]!r}; fetch the template of the base these adapters belong to"
            )
