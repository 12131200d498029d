"""Which checkpoint answers, and why."""

import pytest
from conftest import fixture

from models_laya.language import detect
from models_laya.routing import Router, is_english_code
from system1_core.errors import InvalidRequest, NotFound

ROUTES = fixture("routes.json")
ALL = Router(loaded=("english", "multilingual", "typed-decisions"))
WORKFLOW = ["action", "needs_review", "outcome", "risk", "urgency"]
ENGLISH = "Please refund the charge to my card"


@pytest.mark.parametrize("case", ROUTES, ids=lambda case: str(case["state"]))
def test_route_and_detection_are_the_recorded_ones(case):
    route = ALL.route(case["state"], ["q"])
    assert route.model == case["model"]
    assert route.as_json()["detection"] == case["detection"]


@pytest.mark.parametrize(
    "text",
    [
        "Where is my package?",
        "PLEASE REFUND MY MONEY NOW",
        "THE SERVER IS DOWN AND WE NEED HELP",
        "Rate the coin flip.",
        "It doesn't work",
        "Temperature in the lab is 20 °C today",
        "Zürich office reported an outage at the main site this morning",
        "π is about 3.14 and the area is known to us",
        {"ticket": {"title": "Login fails", "note": "The customer cannot log in since May"}},
        [{"role": "user", "content": "I want to return these shoes"}],
    ],
    ids=str,
)
def test_english_is_recognised(text):
    assert detect(text).verdict is True


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Das Gerät ist kaputt angekommen und ich brauche Hilfe", "de"),
        ("ICH MÖCHTE MEIN GELD ZURÜCK", "de"),
        ("Je voudrais savoir où est ma commande", "fr"),
        ("No puedo iniciar sesión en mi cuenta", "es"),
        ("Gostaria de cancelar a minha assinatura", "pt"),
        ("Vorrei annullare il mio ordine per favore", "it"),
        ("Mijn bestelling is nog niet aangekomen", "nl"),
        ("Nie otrzymałem jeszcze faktury za zamówienie", "pl"),
        ("Jag kan inte logga in på mitt konto", "sv"),
        ("Kargo hala gelmedi ve çok sinirliyim", "tr"),
        ("Chci zrušit svou objednávku ale nejde to", "cs"),
        ("Szeretném tudni hogy hol van a csomagom", "hu"),
        ("Saya ingin membatalkan pesanan saya", "id"),
    ],
    ids=lambda value: value if len(value) == 2 else "",
)
def test_languages_in_latin_script_are_not_english(text, language):
    detection = detect(text)
    assert detection.verdict is False
    assert detection.language == language


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("주문을 취소하고 싶어요", "hangul"),
        ("أريد إلغاء طلبي", "arabic"),
        ("Θέλω να ακυρώσω", "greek"),
        ("ฉันต้องการยกเลิก", "thai"),
        ("わかりました", "hiragana"),
        ("אני רוצה לבטל", "hebrew"),
    ],
    ids=lambda value: value,
)
def test_other_scripts_are_not_english(text, script):
    detection = detect(text)
    assert detection.verdict is False
    assert detection.script == script


@pytest.mark.parametrize("text", ["ok", "hi", "refund", "asdf qwer zxcv uiop", {"n": 5}, [], None])
def test_a_text_that_says_nothing_goes_to_the_default(text):
    assert ALL.route(text, ["q"]).model == "multilingual"
    english = Router(loaded=ALL.loaded, default="english")
    assert english.route(text, ["q"]).model == "english"


def test_one_foreign_line_in_english_text_is_found_and_shown():
    line = "Ich möchte mein Geld zurück und zwar sofort."
    detection = detect(f"Hello team, the customer is upset about the delivery.\n{line}\nThanks!")
    assert detection.verdict is False
    assert detection.mixed_segment == line


def test_one_foreign_field_in_english_text_is_found():
    detection = detect(
        {
            "subject": "Order problem with my account",
            "body": "Quiero que me devuelvan el dinero ahora mismo",
        }
    )
    assert (detection.verdict, detection.language) == (False, "es")


@pytest.mark.parametrize(
    ("code", "english"),
    [
        ("en", True),
        ("EN-us", True),
        ("en_US.UTF-8", True),
        ("english", True),
        ("de", False),
        ("xx yy", False),
        ("mul", None),
        ("C", None),
        (" ", None),
        (None, None),
    ],
)
def test_a_language_code_is_english_or_not_or_silent(code, english):
    assert is_english_code(code) is english


def test_precedence_is_model_task_ids_lang_guess_text():
    by_ids = Router(loaded=ALL.loaded, auto_task=True)
    hints = {"lang": "de", "lang_guess": "en"}

    def model(router=by_ids, ids=WORKFLOW, **given):
        return router.route(ENGLISH, ids, **given).model

    assert model(pinned="english", model="en", task="multilingual", **hints) == "english"
    assert model(task="multilingual", **hints) == "multilingual"
    assert model(**hints) == "typed-decisions"
    assert model(router=ALL, **hints) == "multilingual"
    assert model(ids=["q"], **hints) == "multilingual"
    assert model(ids=["q"], lang="und", lang_guess="de") == "multilingual"
    assert model(ids=["q"], lang_guess="und") == "english"


def test_detection_is_absent_where_nothing_was_detected():
    assert ALL.route(ENGLISH, ["q"], lang="de").detection is None
    assert ALL.route(ENGLISH, ["q"], pinned="english", model="en").detection is None


def test_an_unknown_task_is_refused():
    with pytest.raises(InvalidRequest, match="nope"):
        ALL.route(ENGLISH, ["q"], task="nope")


def test_a_pinned_checkpoint_that_is_not_loaded_is_not_found():
    with pytest.raises(NotFound, match="multilingual"):
        Router(loaded=("english",)).route("x", ["q"], pinned="multilingual", model="ml")


def test_a_hint_for_a_checkpoint_that_is_not_loaded_is_answered_by_the_closest():
    route = Router(loaded=("english", "typed-decisions")).route(ENGLISH, ["q"], lang="de")
    assert route.model == "english"
    assert "not served" in route.reason


def test_only_the_beginning_of_a_long_text_is_looked_at():
    text = "The order is late and we want it. " * 200
    assert detect(text + "Das ist nicht gut und ich bin sehr verärgert").verdict is True
