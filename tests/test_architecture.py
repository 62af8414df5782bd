"""The drawings of docs/architecture.md are those of the code."""

from docs.draw_architecture import ARCHITECTURE_PAGE, draw


def test_the_page_is_what_make_architecture_draws() -> None:
    page = ARCHITECTURE_PAGE.read_text()
    assert page.count("<!-- rooms: ") == page.count("<!-- end -->") == 5
    assert draw(page) == page, "docs/architecture.md is not what the code is: run make architecture"
