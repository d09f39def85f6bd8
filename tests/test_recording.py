"""The recorder of the demo: its terminal shows what a terminal would, and its picture is one."""

from __future__ import annotations

from xml.etree import ElementTree

from tools.record_demo import frames, picture
from tools.terminal_screen import Screen


def test_the_terminal_wraps_scrolls_and_redraws() -> None:
    screen = Screen(6, 3)
    screen.feed("one\r\ntwo\r\nabcdefgh")
    assert screen.text() == ["two", "abcdef", "gh"]
    screen.feed("\r\x1b[2K\x1b[1A\x1b[2Kx\x1b[1")
    screen.feed("Ay\x1b[?25l")
    assert screen.text() == ["tyo", "x", ""]
    screen.feed("\x1b[31mr\x1b[38;5;237mg\x1b[38;2;1;2;3mb\x1b[0;1md")
    looks = [cell.look for cell in screen.rows[0][2:6]]
    assert [look.colour for look in looks] == ["31", "#3a3a3a", "#010203", None] and looks[3].bold


def test_a_recording_becomes_a_picture_that_moves() -> None:
    printed = [(0.0, "\x1b[1mone\x1b[0m & <two>\r\n"), (1.0, "\x1b[32m✓\x1b[0m three\r\n"), (9.0, "four\r\n")]
    shown = frames(iter(printed), 20.0)
    assert sum(seconds for seconds, _ in shown) <= 20.0
    root = ElementTree.fromstring(picture(shown))
    names = {"{http://www.w3.org/2000/svg}use", "{http://www.w3.org/2000/svg}title"}
    assert names <= {one.tag for one in root.iter()}
    assert {"one", "& <two>", "✓", "three", "four"} <= {(one.text or "").strip() for one in root.iter()}
