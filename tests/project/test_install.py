"""Where packages come from is said once, to pip."""

from __future__ import annotations

from tools.install import handed_on

LISTED = """\
global.index-url='https://one.invalid/simple'
global.timeout='60'
install.extra-index-url='\\nhttps://two.invalid/simple\\nhttps://three.invalid/simple'
:env:.cert='/etc/ssl/certs/all.pem'
:env:.find-links='/wheels /more'
:env:.index-url='https://env.invalid/a=b/simple'
"""


def test_uv_is_told_what_pip_was_told() -> None:
    assert handed_on(LISTED) == {
        "UV_DEFAULT_INDEX": "https://env.invalid/a=b/simple",
        "UV_INDEX": "https://two.invalid/simple https://three.invalid/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/etc/ssl/certs/all.pem",
    }


def test_without_settings_nothing_is_told() -> None:
    assert handed_on("") == {}
