"""Every extra has an example, and each example is what a page says; they run before a release."""

import ast

import pytest

from tests import extras


def test_every_extra_has_an_example():
    assert set(extras.EXAMPLES) == {"core", *extras.extras()}


@pytest.mark.parametrize(
    ("name", "example"),
    [(name, each) for name in extras.EXAMPLES for each in extras.EXAMPLES[name]],
)
def test_an_example_is_what_a_page_says(name, example):
    text = (extras.ROOT / example.page).read_text(encoding="utf-8")
    assert example.says in text
    code = extras.code(example)
    assert (example.run in (extras.BLOCK, extras.PAGE)) == bool(code)
    ast.parse(code)


def test_an_unknown_extra_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        extras.main(["tourch"])
    assert (
        ended.value.code == 2 and "unknown extra 'tourch'; known: core" in capsys.readouterr().err
    )
