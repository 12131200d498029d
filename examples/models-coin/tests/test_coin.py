"""What every plugin can test with core's kit."""

from system1_core.testing import check_family, serve


def test_the_family_is_found_and_answers_its_example():
    check_family("coin")


def test_it_is_served_over_http():
    with serve("coin") as server:
        answers = server.ask(
            {
                "state": "x",
                "questions": {
                    "side": {"type": "choice", "criteria": {"heads": None, "tails": None}},
                    "worn": {"type": "score", "criteria": ["new", "used", "worn"]},
                    "fair": {"type": "noul", "instructions": "Is it fair?"},
                },
            }
        )
    assert answers["side"]["choice"] == "heads"
    assert answers["worn"]["score"] == 0
    assert answers["fair"]["noul"] == 0
