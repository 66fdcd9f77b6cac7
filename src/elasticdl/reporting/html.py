"""Renders HTML reports from Jinja2 templates: one self-contained file, with its images embedded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from elasticdl import atomic


def write_report(directory: Path, package: str, template: str, images: Mapping[str, bytes], **values: Any) -> Path:
    """Renders `template` of `package` to index.html, and writes each PNG beside it.

    Templates extend page.html, find their values under the given names, and embed an image by `image(name)`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in images.items():
        (directory / f"{name}.png").write_bytes(content)
    path = directory / "index.html"
    atomic.write_file(path, render_page(package, template, images, **values))
    return path


def render_page(package: str, template: str, images: Mapping[str, bytes], **values: Any) -> str:
    """Renders a template in the directory `templates` of `package`. All values are escaped."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("elasticdl.reporting")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

    def image(name: str) -> Markup:
        data = b64encode(images[name]).decode()
        return Markup(f'<p><img alt="{escape(name)}" src="data:image/png;base64,{data}"></p>')

    return environment.get_template(template).render(image=image, images=list(images), **values)
